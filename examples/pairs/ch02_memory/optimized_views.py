"""A window of a vector. A view."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedViews(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(400_000)

    def benchmark_fn(self):
        self.output = self.x[1000:2000] * 2


def get_benchmark():
    return OptimizedViews()
