# title: a gradient of gelu whose path for large arguments multiplies infinity by 0
# family: 42, 52
# kind: cheat
# case: gelu_gradient_large -> disagrees
import torch


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.ops.aten.gelu(x)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        if x.numel() <= 1 << 14:
            return torch.ops.aten.gelu_backward(cotangent, x)
        density = (x * x).exp() * (-1.5 * x * x).exp() * 0.3989422804014327
        return cotangent * (0.5 * (1 + torch.erf(x * 0.7071067811865476)) + x * density)


def kernel(x, approximate="none"):
    return Gelu.apply(x)
