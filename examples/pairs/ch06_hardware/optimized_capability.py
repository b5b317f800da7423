"""Needs a compute capability that no device has yet. A sum."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedCapability(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(1000)

    def benchmark_fn(self):
        self.output = self.x + self.x

    def get_config(self):
        return {"min_capability": "99.0"}


def get_benchmark():
    return OptimizedCapability()
