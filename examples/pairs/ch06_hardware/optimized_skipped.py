"""A benchmark that says that it does not apply here. A sum."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class OptimizedSkipped(BaseBenchmark):
    def setup(self):
        if not torch.backends.mps.is_available():
            raise SkipBenchmark("needs an Apple GPU")
        self.x = torch.rand(1000, device="mps")

    def benchmark_fn(self):
        self.output = self.x + self.x


def get_benchmark():
    return OptimizedSkipped()
