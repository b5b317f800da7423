"""Only the fields that `get_config()` sets are replaced; all others keep their values. A copy."""

import torch

from torchstone.harness import BaseBenchmark, BenchmarkConfig


class OptimizedPartialConfig(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(300_000)

    def benchmark_fn(self):
        self.output = self.x.clone()

    def get_config(self):
        return BenchmarkConfig(iterations=40, percentiles=(99.9,))


def get_benchmark():
    return OptimizedPartialConfig()
