# title: zeroes its argument
# kind: honest
# case: zero_timed -> agrees


def kernel(x):
    return x.zero_()
