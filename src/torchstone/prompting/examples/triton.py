import torch
import triton
import triton.language as tl


@triton.jit
def _softshrink(x_ptr, y_ptr, count, lambd, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # int64: tensors may be large
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, x * 0.0))  # x * 0.0 keeps NaN
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    if self.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{self.dtype}: this kernel takes float32, float16 and bfloat16")
    result = torch.empty_like(self)  # dense, with the strides that PyTorch's own result has
    x = self if self.stride() == result.stride() else torch.empty_like(self).copy_(self)  # same order of memory
    if x.numel():  # a grid of 0 programs is an error
        _softshrink[(triton.cdiv(x.numel(), 1024),)](x, result, x.numel(), float(lambd), BLOCK=1024)
    return result
