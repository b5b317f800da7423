"""A sum of squares. One call for all elements."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedVectorize(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(2000)

    def benchmark_fn(self):
        self.output = (self.x * self.x).sum()


def get_benchmark():
    return OptimizedVectorize()
