"""Only the fields that `get_config()` sets are replaced; all others keep their values. A root and a square."""

import torch

from torchstone.harness import BaseBenchmark, BenchmarkConfig


class BaselinePartialConfig(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(300_000)

    def benchmark_fn(self):
        self.output = self.x.sqrt().square()

    def get_config(self):
        return BenchmarkConfig(iterations=40, percentiles=(99.9,))


def get_benchmark():
    return BaselinePartialConfig()
