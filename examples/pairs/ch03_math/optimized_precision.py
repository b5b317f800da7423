"""A product in another precision: the tolerance is declared. In float32."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedPrecision(BaseBenchmark):
    def setup(self):
        self.low = torch.rand(160, 160, dtype=torch.float64).float()

    def benchmark_fn(self):
        self.output = self.low @ self.low

    def get_output_tolerance(self):
        return (1e-4, 1e-3)


def get_benchmark():
    return OptimizedPrecision()
