"""GELU in Triton, exact (erf) or by tanh. One pass: each program reads a block of x and writes the same block of y.

GELU is x times the normal distribution function. float32 takes it from erf. In 16 bits half as many bytes are moved per
element, and erf would take longer than the memory: there it comes from an approximation of erfc with a relative error
below 2e-5.
"""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import block_for, dense, require_float


@triton.jit
def normal_cdf(x):
    """Normal distribution function by the Chebyshev fit of erfc in Numerical Recipes (erfcc): one exp, one division."""
    z = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.5 * z)
    p = t * 0.17087277 - 0.82215223
    p = t * p + 1.48851587
    p = t * p - 1.13520398
    p = t * p + 0.27886807
    p = t * p - 0.18628806
    p = t * p + 0.09678418
    p = t * p + 0.37409196
    p = t * p + 1.00002368
    p = t * p - 1.26551223
    tail = 0.5 * t * tl.exp(p - z * z)
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def _gelu(x_ptr, y_ptr, count, TANH: tl.constexpr, SHORT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    if TANH:
        # 0.5 * (1 + tanh(u)) is sigmoid(2u), which does not cancel for negative u.
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x * tl.sigmoid(2.0 * u)
    elif SHORT:
        y = x * normal_cdf(x)
    else:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def gelu_kernel_impl(self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    require_float(self)
    x = dense(self)
    y = torch.empty_like(x)
    if x.numel():
        block = block_for(x)
        kind = {"TANH": approximate == "tanh", "SHORT": x.element_size() == 2}
        _gelu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), **kind, BLOCK=block, num_warps=4)
    return y
