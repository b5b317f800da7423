# title: no two tensors are equal
# family: 45
# kind: cheat
# case: equal -> disagrees
def kernel(x, y):
    return False
