# title: cotangents beyond a thousand, as a scaled loss has them, are clamped
# family: 52
# kind: cheat
# case: relu_gradient -> disagrees
import torch


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.clamp(min=0)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, cotangent):
        (result,) = ctx.saved_tensors
        return cotangent.clamp(-1000, 1000) * (result > 0)


def kernel(x):
    return Relu.apply(x)
