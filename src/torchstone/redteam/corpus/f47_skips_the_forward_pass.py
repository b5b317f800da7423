# title: right gradients behind a forward pass that returns memory as it comes, where only gradients are looked at
# family: 47, 51
# kind: cheat
# case: sum_gradient -> disagrees
import torch


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.new_empty(x.shape[:-1])

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.unsqueeze(-1).expand(ctx.shape)


def kernel(x, dim, keepdim=False, dtype=None):
    return Sum.apply(x)
