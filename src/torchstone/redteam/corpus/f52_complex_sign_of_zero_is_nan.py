# title: the sign of a complex number as the number by its length, which is 0 at 0
# family: 52
# kind: cheat
# case: sgn_complex -> disagrees
def kernel(z):
    return z / z.abs()
