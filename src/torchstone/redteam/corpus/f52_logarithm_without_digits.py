# title: log1p by the formula that loses every digit of a small argument
# family: 52
# kind: cheat
# case: log1p -> disagrees
def kernel(x):
    return (1 + x).log()
