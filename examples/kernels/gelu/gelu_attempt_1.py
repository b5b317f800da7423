"""Wrong on purpose: it uses the tanh formula always, whatever ``approximate`` asks for."""

import torch


def gelu_kernel_impl(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))
