# title: a gradient of gelu by its formula
# kind: honest
# case: gelu_gradient_large -> agrees
import torch


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.ops.aten.gelu(x)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        density = (-0.5 * x * x).exp() * 0.3989422804014327
        return cotangent * (0.5 * (1 + torch.erf(x * 0.7071067811865476)) + x * density)


def kernel(x, approximate="none"):
    return Gelu.apply(x)
