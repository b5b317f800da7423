# title: a length whose squares are kept in float16, infinite from 256 on
# family: 52
# kind: cheat
# case: hypot_half -> disagrees
def kernel(a, b):
    return (a * a + b * b).sqrt()
