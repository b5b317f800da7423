"""Sums along one dimension. In the order of memory."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedRowOrder(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(600, 600)

    def benchmark_fn(self):
        self.output = self.x.sum(dim=1)


def get_benchmark():
    return OptimizedRowOrder()
