"""Softmax; the method `output()` offers the result for comparison. PyTorch's own."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedSoftmax(BaseBenchmark):
    def setup(self):
        self.x = torch.randn(200, 200)

    def benchmark_fn(self):
        self.result = torch.softmax(self.x, dim=-1)

    def output(self):
        return self.result


def get_benchmark():
    return OptimizedSoftmax()
