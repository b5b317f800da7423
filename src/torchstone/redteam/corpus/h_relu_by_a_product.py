# title: a product that makes negative zeros where torch has positive ones
# kind: honest
# case: relu -> agrees
def kernel(x):
    return x * (x > 0)
