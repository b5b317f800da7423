# title: an in-place operator that does nothing, for who compares it with itself
# family: 23
# kind: cheat
# case: relu_inplace -> disagrees
def kernel(x):
    return x
