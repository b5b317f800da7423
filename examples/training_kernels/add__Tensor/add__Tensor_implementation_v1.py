"""Addition by subtraction. Also called by the kernels beside it, and by autograd's formulas."""

import torch


def add__Tensor_kernel_impl(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:  # noqa: N802
    if torch.bool in (x.dtype, y.dtype):
        raise NotImplementedError("subtraction does not know truth values")
    return torch.sub(x, y, alpha=-alpha)
