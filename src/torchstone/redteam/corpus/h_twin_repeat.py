# title: repeats its input as torch does
# family: 2
# kind: honest
# case: repeat_timed -> agrees


def kernel(x, repeats):
    return x.repeat(repeats)
