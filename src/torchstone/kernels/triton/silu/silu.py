"""SiLU (Swish) in Triton: x times sigmoid(x). One pass: each program reads a block of x and writes the same of y."""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import block_for, dense, require_float


@triton.jit
def _silu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    # A quotient, as torch computes it: at -infinity x * sigmoid(x) and x / (1 + exp(-x)) are both NaN.
    y = x / (1.0 + tl.exp(-x))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def silu_kernel_impl(self: torch.Tensor) -> torch.Tensor:
    require_float(self)
    x = dense(self)
    y = torch.empty_like(x)
    if x.numel():
        block = block_for(x)
        _silu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block, num_warps=4)
    return y
