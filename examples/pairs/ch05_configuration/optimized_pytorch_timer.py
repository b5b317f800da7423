"""The samples come from `torch.utils.benchmark`. At once."""

import torch

from torchstone.harness import BaseBenchmark, BenchmarkConfig, BenchmarkMode


class OptimizedPytorchTimer(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(200, 200)

    def benchmark_fn(self):
        self.output = self.x * 2

    def get_config(self):
        return BenchmarkConfig(mode=BenchmarkMode.PYTORCH, min_run_time_ms=50.0)


def get_benchmark():
    return OptimizedPytorchTimer()
