"""A sum of squares. One element at a time, in Python."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineVectorize(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(2000)

    def benchmark_fn(self):
        total = 0.0
        for value in self.x.tolist():
            total += value * value
        self.output = torch.tensor(total)


def get_benchmark():
    return BaselineVectorize()
