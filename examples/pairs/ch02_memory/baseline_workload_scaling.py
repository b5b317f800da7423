"""A workload that fits the memory of the machine. Exponential and back."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineWorkloadScaling(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(self._scale_workload_by_memory(200_000))

    def benchmark_fn(self):
        self.output = self.x.exp().log()


def get_benchmark():
    return BaselineWorkloadScaling()
