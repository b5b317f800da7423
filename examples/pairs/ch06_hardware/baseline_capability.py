"""Needs a compute capability that no device has yet. A product."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineCapability(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(1000)

    def benchmark_fn(self):
        self.output = self.x * 2

    def get_config(self):
        return {"min_capability": "99.0"}


def get_benchmark():
    return BaselineCapability()
