"""The configuration may be a dict. One."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedConfigAsDict(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(300_000)

    def benchmark_fn(self):
        self.output = self.x.clone()

    def get_config(self):
        return {"iterations": 30, "warmup": 3}


def get_benchmark():
    return OptimizedConfigAsDict()
