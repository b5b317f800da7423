"""A sum of two vectors. Every call allocates its result."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineAllocation(BaseBenchmark):
    def setup(self):
        self.x, self.y = torch.rand(200_000), torch.rand(200_000)
        self.out = torch.empty_like(self.x)

    def benchmark_fn(self):
        self.output = self.x + self.y


def get_benchmark():
    return BaselineAllocation()
