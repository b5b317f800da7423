import torch


class _Softshrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.save_for_backward(x)
        ctx.lambd = lambd
        inside = x * 0  # keeps NaN
        return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, inside))

    @staticmethod
    def backward(ctx, grad):  # the gradient of the result; one value is returned for each argument of forward
        (x,) = ctx.saved_tensors
        inside = (x >= -ctx.lambd) & (x <= ctx.lambd)
        return torch.where(inside, torch.zeros_like(grad), grad), None


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    return _Softshrink.apply(self, lambd)
