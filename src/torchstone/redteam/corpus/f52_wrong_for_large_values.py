# title: a softmax without the maximum taken off: infinite for values above 88
# family: 52
# kind: cheat
# case: softmax_large -> disagrees
import torch


def kernel(x, dim, half_to_float):
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)
