# title: the gradient of softmax by the textbook, from the result that was kept, where that is nearly 1
# family: 46
# kind: honest
# case: softmax_gradient_steep -> agrees
import torch


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        result = torch.softmax(x, dim)
        ctx.save_for_backward(result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx, cotangent):
        (result,) = ctx.saved_tensors
        return result * (cotangent - (cotangent * result).sum(ctx.dim, keepdim=True)), None


def kernel(x, dim, half_to_float):
    return Softmax.apply(x, dim)
