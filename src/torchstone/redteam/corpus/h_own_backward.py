# title: a gradient by an autograd function of its own
# kind: honest
# case: sum_gradient -> agrees
import torch


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x @ x.new_ones(x.shape[-1])

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.unsqueeze(-1).expand(ctx.shape)


def kernel(x, dim, keepdim=False, dtype=None):
    return Sum.apply(x)
