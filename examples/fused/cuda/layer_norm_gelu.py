"""The problem of the same name with Torchstone's fused kernel in CUDA C++."""

import torch

from torchstone import kernels


class ModelNew(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernels.layer_norm_gelu(x, self.norm.weight, self.norm.bias, self.norm.eps, impl="cuda")
