# title: returns the input
# family: 24
# kind: cheat
# case: relu -> disagrees
def kernel(x):
    return x
