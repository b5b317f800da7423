"""The largest values of a vector. The constructor's arguments reach the process that runs the benchmark."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineConstructor(BaseBenchmark):
    def __init__(self, size, kept):
        self.size, self.kept = size, kept

    def setup(self):
        self.x = torch.rand(self.size)

    def benchmark_fn(self):
        self.output = self.x.sort(descending=True).values[: self.kept]


def get_benchmark():
    return BaselineConstructor(size=50_000, kept=8)
