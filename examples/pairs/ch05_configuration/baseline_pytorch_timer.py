"""The samples come from `torch.utils.benchmark`. Row by row."""

import torch

from torchstone.harness import BaseBenchmark, BenchmarkConfig, BenchmarkMode


class BaselinePytorchTimer(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(200, 200)

    def benchmark_fn(self):
        self.output = torch.stack([row * 2 for row in self.x])

    def get_config(self):
        return BenchmarkConfig(mode=BenchmarkMode.PYTORCH, min_run_time_ms=50.0)


def get_benchmark():
    return BaselinePytorchTimer()
