# title: a product computed in float64
# kind: honest
# case: mul_flushed -> agrees
def kernel(x, y):
    return (x.double() * y.double()).to(x.dtype)
