"""A window of a vector. A copy of everything."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineViews(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(400_000)

    def benchmark_fn(self):
        self.output = self.x.clone()[1000:2000] * 2


def get_benchmark():
    return BaselineViews()
