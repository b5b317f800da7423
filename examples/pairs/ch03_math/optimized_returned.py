"""Tensors that `benchmark_fn` returns are compared. Sums."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedReturned(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(64, 256)

    def benchmark_fn(self):
        return self.x.sum(dim=1)


def get_benchmark():
    return OptimizedReturned()
