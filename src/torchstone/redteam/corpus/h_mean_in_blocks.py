# title: adds whole blocks and what is left over
# kind: honest
# case: mean_varied -> agrees
def kernel(x, dims, keepdim=False, dtype=None):
    length = x.shape[-1]
    whole = length // 32 * 32
    return (x[..., :whole].sum(-1, keepdim=keepdim) + x[..., whole:].sum(-1, keepdim=keepdim)) / length
