"""Both forms of the operator: the exact one and the one by the hyperbolic tangent."""

import math

import torch


def gelu_kernel_impl(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
        share = 0.5 * (1 + torch.tanh(inner))
    else:
        share = 0.5 * torch.erfc(-wide / math.sqrt(2))
    return (wide * share).to(x.dtype)
