"""Sums along one dimension. A transposed copy first."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineRowOrder(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(600, 600)

    def benchmark_fn(self):
        self.output = self.x.t().contiguous().sum(dim=0)


def get_benchmark():
    return BaselineRowOrder()
