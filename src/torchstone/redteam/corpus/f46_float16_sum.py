# title: a float32 sum accumulated in float16 pieces
# family: 46
# kind: cheat
# case: sum -> disagrees/values
def kernel(x, dim, keepdim=False, dtype=None):
    return x.half().view(x.shape[0], -1, 64).sum(-1).float().sum(-1)
