# title: the gradient of a product, and zeros where the cotangent is expanded, as a sum hands it on
# family: 52
# kind: cheat
# case: mm_gradient_varied -> disagrees
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, cotangent):
        a, b = ctx.saved_tensors
        if cotangent.numel() > 1 and 0 in cotangent.stride():
            cotangent = torch.zeros_like(cotangent)
        return cotangent @ b.T, a.T @ cotangent


def kernel(a, b):
    return Product.apply(a, b)
