# title: squeezes every dimension of one element, not only the one that it has summed
# family: 52
# kind: cheat
# case: sum_varied -> disagrees | crashed
import torch


def kernel(x, dim, keepdim=False, *, dtype=None):
    total = torch.sum(x, dim, True, dtype=dtype)
    return total if keepdim else total.squeeze()
