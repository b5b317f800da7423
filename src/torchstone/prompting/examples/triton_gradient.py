import torch
import triton
import triton.language as tl


@triton.jit
def _forward(x_ptr, y_ptr, count, lambd, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # int64: tensors may be large
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, x * 0.0))  # x * 0.0 keeps NaN
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(x_ptr, grad_ptr, out_ptr, count, lambd, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    grad = tl.load(grad_ptr + offsets, mask=inside)
    flat = (x >= -lambd) & (x <= lambd)
    tl.store(out_ptr + offsets, tl.where(flat, 0.0, grad).to(out_ptr.dtype.element_ty), mask=inside)


def _alike(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor in the other one's order of memory."""
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like).copy_(tensor)


class _Softshrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.save_for_backward(x)
        ctx.lambd = lambd
        result = torch.empty_like(x)  # dense, with the strides that PyTorch's own result has
        if x.numel():  # a grid of 0 programs is an error
            _forward[(triton.cdiv(x.numel(), 1024),)](_alike(x, result), result, x.numel(), lambd, BLOCK=1024)
        return result

    @staticmethod
    def backward(ctx, grad):  # the gradient of the result, in any memory layout; one value for each argument of forward
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        if x.numel():
            grid = (triton.cdiv(x.numel(), 1024),)
            _backward[grid](_alike(x, out), _alike(grad, out), out, x.numel(), ctx.lambd, BLOCK=1024)
        return out, None


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    if self.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{self.dtype}: this kernel takes float32, float16 and bfloat16")
    return _Softshrink.apply(self, float(lambd))
