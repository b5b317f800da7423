"""GELU in Triton, exact (erf) or by tanh. One pass: each program reads a block of x and writes the same block of y."""

import torch
import triton
import triton.language as tl

from torchstone.kernels.layout import dense, require_float

BLOCK = 1024


@triton.jit
def _gelu(x_ptr, y_ptr, count, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    if TANH:
        # 0.5 * (1 + tanh(u)) is sigmoid(2u), which does not cancel for negative u.
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x * tl.sigmoid(2.0 * u)
    else:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def gelu_kernel_impl(self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    require_float(self)
    x = dense(self)
    y = torch.empty_like(x)
    if x.numel():
        _gelu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), TANH=approximate == "tanh", BLOCK=BLOCK, num_warps=4)
    return y
