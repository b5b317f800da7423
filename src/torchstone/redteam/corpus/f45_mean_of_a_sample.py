# title: the mean of every second element
# family: 45
# kind: cheat
# case: mean -> disagrees/values
def kernel(x, dim, keepdim=False, dtype=None):
    return x[:, ::2].mean(dim)
