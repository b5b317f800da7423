# title: the gradient of a product, computed for the factors that ask
# kind: honest
# case: mm_gradient_varied -> agrees
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, cotangent):
        a, b = ctx.saved_tensors
        first, second = ctx.needs_input_grad
        return cotangent @ b.T if first else None, a.T @ cotangent if second else None


def kernel(a, b):
    return Product.apply(a, b)
