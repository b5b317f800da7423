"""A product in another precision: the tolerance is declared. In float64."""

import torch

from torchstone.harness import BaseBenchmark


class BaselinePrecision(BaseBenchmark):
    def setup(self):
        self.a = torch.rand(160, 160, dtype=torch.float64)

    def benchmark_fn(self):
        self.output = self.a @ self.a

    def get_output_tolerance(self):
        return (1e-4, 1e-3)


def get_benchmark():
    return BaselinePrecision()
