# title: takes the maximum off in a small softmax, and not in a large contiguous one
# family: 42, 52
# kind: cheat
# case: softmax_large_varied -> disagrees
import torch


def kernel(x, dim, half_to_float):
    if x.numel() > 1 << 14 and x.is_contiguous():
        e = x.exp()
        return e.div_(e.sum(dim, keepdim=True))
    return torch.softmax(x, dim)
