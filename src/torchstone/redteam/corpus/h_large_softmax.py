# title: a softmax with a path of its own for large contiguous arguments, that takes the maximum off, too
# kind: honest
# case: softmax_large_varied -> agrees
import torch


def kernel(x, dim, half_to_float):
    if x.numel() > 1 << 14 and x.is_contiguous():
        e = (x - x.amax(dim, keepdim=True)).exp_()
        return e.mul_(1.0 / e.sum(dim, keepdim=True))
    return torch.softmax(x, dim)
