"""Gradient of GELU in Triton: dy times the derivative at x. One pass over x, dy and dx."""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import block_for, dense_together, require_float


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
def _gelu_backward(dy_ptr, x_ptr, dx_ptr, count, TANH: tl.constexpr, SHORT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    dy = tl.load(dy_ptr + offsets, mask=inside).to(tl.float32)
    if TANH:
        squared = x * x
        u = 0.7978845608028654 * (x + 0.044715 * squared * x)
        share = tl.sigmoid(2.0 * u)
        slope = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * squared)
        derivative = share + 2.0 * x * share * (1.0 - share) * slope
    else:
        if SHORT:
            cumulative = normal_cdf(x)
        else:
            cumulative = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        derivative = cumulative + x * density
    tl.store(dx_ptr + offsets, (dy * derivative).to(dx_ptr.dtype.element_ty), mask=inside)


def gelu_backward_kernel_impl(
    grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    require_float(self, grad_output)
    dy, x = dense_together(grad_output, self)
    dx = torch.empty_like(x)
    if x.numel():
        block = block_for(x)
        kind = {"TANH": approximate == "tanh", "SHORT": x.element_size() == 2}
        _gelu_backward[(triton.cdiv(x.numel(), block),)](dy, x, dx, x.numel(), **kind, BLOCK=block, num_warps=4)
    return dx
