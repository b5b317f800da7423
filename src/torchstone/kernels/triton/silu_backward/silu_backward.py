"""Gradient of SiLU (Swish) in Triton. One pass over x, dy and dx."""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import block_for, dense_together, require_float


@triton.jit
def _silu_backward(dy_ptr, x_ptr, dx_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    dy = tl.load(dy_ptr + offsets, mask=inside).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-x))
    dx = dy * share * (1.0 + x * (1.0 - share))
    tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def silu_backward_kernel_impl(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    require_float(self, grad_output)
    dy, x = dense_together(grad_output, self)
    dx = torch.empty_like(x)
    if x.numel():
        block = block_for(x)
        _silu_backward[(triton.cdiv(x.numel(), block),)](dy, x, dx, x.numel(), BLOCK=block, num_warps=4)
    return dx
