# title: a sum with the dimension kept, and that one taken away
# kind: honest
# case: sum_varied -> agrees
import torch


def kernel(x, dim, keepdim=False, *, dtype=None):
    total = torch.sum(x, dim, True, dtype=dtype)
    return total if keepdim else total.squeeze(tuple(dim))
