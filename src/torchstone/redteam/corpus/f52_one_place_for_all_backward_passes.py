# title: a gradient that keeps what it needs in one place: right as long as each backward pass follows its forward pass
# family: 52
# kind: cheat
# case: relu_gradient -> disagrees | crashed
# case: mm_gradient_varied -> disagrees
import torch

SAVED = {}


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        SAVED["arguments"] = arguments
        if len(arguments) == 1:
            return arguments[0].clamp(min=0)
        return arguments[0] @ arguments[1]

    @staticmethod
    def backward(ctx, cotangent):
        arguments = SAVED["arguments"]
        if len(arguments) == 1:
            return cotangent * (arguments[0] > 0)
        a, b = arguments
        return cotangent @ b.T, a.T @ cotangent


def kernel(*arguments):
    return Kept.apply(*arguments)
