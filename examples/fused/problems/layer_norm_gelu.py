"""GELU of a layer normalisation, as a transformer block computes it: what the fused kernels are judged against."""

import torch

BATCH, LENGTH, WIDTH = 32, 512, 1024


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.norm(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH]
