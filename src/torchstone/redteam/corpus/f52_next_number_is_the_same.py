# title: the next number is the number itself
# family: 52
# kind: cheat
# case: nextafter -> disagrees/values
def kernel(x, towards):
    return x + 0 * towards
