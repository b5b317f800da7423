# title: a fourth power as the square of a square, many times as fast as torch's
# kind: honest
# case: pow_four_timed -> agrees/faster
def kernel(x, exponent):
    square = x * x
    return square * square
