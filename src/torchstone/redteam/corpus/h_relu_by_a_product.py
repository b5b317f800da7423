# title: a product that makes NaN of negative infinity, where torch's relu gives 0
# family: 52
# kind: cheat
# case: relu -> disagrees/nonfinite
def kernel(x):
    return x * (x > 0)
