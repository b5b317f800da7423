# title: clamps to -1 and 1, whatever is asked for
# family: 52
# kind: cheat
# case: clamp_whole_varied -> disagrees/values
def kernel(x, low=None, high=None):
    return x.clamp(-1, 1)
