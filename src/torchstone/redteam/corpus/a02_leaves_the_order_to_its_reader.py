# title: a copy as the memory lies, with strides that make it look transposed: whoever reads it does the work
# family: 2
# kind: cheat
# case: transpose_copy_timed -> no-credit
# twin: h_twin_transpose_copy
def kernel(x, first, second):
    return x.clone().transpose(first, second)
