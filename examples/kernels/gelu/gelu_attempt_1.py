"""Wrong on purpose: it uses the tanh formula always, whatever ``approximate`` asks for."""

import torch


def gelu_kernel_impl(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    wide = x.float()
    inner = 0.7978845608028654 * (wide + 0.044715 * wide**3)
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)
