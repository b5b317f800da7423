"""A product of matrices as a batch of one. A folder named after the operator alone serves its overload ``default``."""

import torch


def mm_kernel_impl(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.unsqueeze(0), y.unsqueeze(0)).squeeze(0)
