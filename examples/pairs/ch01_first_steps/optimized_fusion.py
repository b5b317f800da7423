"""A scaled product added to a bias. One pass over memory."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedFusion(BaseBenchmark):
    def setup(self):
        self.x, self.y, self.z = (torch.rand(200_000) for _ in range(3))

    def benchmark_fn(self):
        self.output = torch.addcmul(self.x, self.y, self.z, value=0.5)


def get_benchmark():
    return OptimizedFusion()
