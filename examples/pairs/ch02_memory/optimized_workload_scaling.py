"""A workload that fits the memory of the machine. A copy: the same values."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedWorkloadScaling(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(self._scale_workload_by_memory(200_000))

    def benchmark_fn(self):
        self.output = self.x.clone()


def get_benchmark():
    return OptimizedWorkloadScaling()
