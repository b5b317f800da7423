# title: the mean of float16 numbers from a sum that float16 does not hold
# family: 52
# kind: cheat
# case: mean_half -> disagrees
def kernel(x, dim, keepdim=False, *, dtype=None):
    count = 1
    for each in dim:
        count *= x.shape[each]
    return x.float().sum(dim, keepdim).to(x.dtype) / count
