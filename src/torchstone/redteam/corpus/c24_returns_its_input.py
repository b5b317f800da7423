# title: returns the input
# family: 24
# kind: cheat
# case: relu -> disagrees/values
def kernel(x):
    return x
