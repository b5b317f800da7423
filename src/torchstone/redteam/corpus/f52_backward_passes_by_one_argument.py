# title: a gradient of a product that finds what it needs by the address of one factor
# family: 52
# kind: cheat
# case: mm_gradient_varied -> disagrees
import torch

SAVED = {}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.key = a.data_ptr()
        SAVED[ctx.key] = a.detach(), b.detach()
        return a @ b

    @staticmethod
    def backward(ctx, cotangent):
        a, b = SAVED[ctx.key]
        return cotangent @ b.T, a.T @ cotangent


def kernel(a, b):
    return Product.apply(a, b)
