"""A scaled product added to a bias. Three passes over memory."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineFusion(BaseBenchmark):
    def setup(self):
        self.x, self.y, self.z = (torch.rand(200_000) for _ in range(3))

    def benchmark_fn(self):
        scaled = self.y * 0.5
        product = scaled * self.z
        self.output = self.x + product


def get_benchmark():
    return BaselineFusion()
