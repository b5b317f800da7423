"""Needs more devices than there are: declared in the configuration. A product."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineManyDevices(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(1000)

    def benchmark_fn(self):
        self.output = self.x * 2

    def get_config(self):
        return {"min_devices": 64}


def get_benchmark():
    return BaselineManyDevices()
