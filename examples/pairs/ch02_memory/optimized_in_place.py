"""Memory figures: compare `peak_mb` of the two sides. One tensor, in place."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedInPlace(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(500_000)

    def benchmark_fn(self):
        y = self.x.clone()
        for _ in range(4):
            y.sigmoid_()
        self.output = y


def get_benchmark():
    return OptimizedInPlace()
