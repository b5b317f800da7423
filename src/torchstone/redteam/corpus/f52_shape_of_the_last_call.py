# title: a gradient that takes the shape of its argument from the call before
# family: 52
# kind: cheat
# case: sum_gradient -> disagrees | crashed
import torch

LAST = {}


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LAST["shape"] = x.shape
        return x.sum(-1)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.unsqueeze(-1).expand(LAST["shape"])


def kernel(x, dim, keepdim=False, dtype=None):
    return Sum.apply(x)
