"""Memory figures: compare `peak_mb` of the two sides. A new tensor for every step."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineInPlace(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(500_000)

    def benchmark_fn(self):
        y = self.x
        for _ in range(4):
            y = torch.sigmoid(y)
        self.output = y


def get_benchmark():
    return BaselineInPlace()
