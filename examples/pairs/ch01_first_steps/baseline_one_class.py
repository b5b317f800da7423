"""A file without `get_benchmark()`: its only benchmark class is taken. Row by row."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineOneClass(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(300, 300)

    def benchmark_fn(self):
        self.output = torch.stack([row.sum() for row in self.x])
