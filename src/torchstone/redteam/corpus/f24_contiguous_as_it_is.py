# title: a contiguous tensor that is the argument, as it lies
# family: 24, 52
# kind: cheat
# case: contiguous -> disagrees
def kernel(x):
    return x
