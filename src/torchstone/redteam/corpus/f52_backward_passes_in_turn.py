# title: a gradient that keeps what it needs of the last 32 forward passes
# family: 52
# kind: cheat
# case: relu_gradient -> disagrees
import torch

SAVED, NEXT = [None] * 32, [0]


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slot = NEXT[0]
        NEXT[0] = (NEXT[0] + 1) % len(SAVED)
        SAVED[ctx.slot] = x > 0
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * SAVED[ctx.slot]


def kernel(x):
    return Kept.apply(x)
