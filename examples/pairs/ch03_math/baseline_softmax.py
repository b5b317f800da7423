"""Softmax; the method `output()` offers the result for comparison. Row by row."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineSoftmax(BaseBenchmark):
    def setup(self):
        self.x = torch.randn(200, 200)

    def benchmark_fn(self):
        powers = [torch.exp(row - row.max()) for row in self.x]
        self.result = torch.stack([row / row.sum() for row in powers])

    def output(self):
        return self.result


def get_benchmark():
    return BaselineSoftmax()
