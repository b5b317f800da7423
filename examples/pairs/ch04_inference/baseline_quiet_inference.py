"""Inference without gradients. Autograd records."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineQuietInference(BaseBenchmark):
    def setup(self):
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(20)))
        self.x = torch.rand(4, 16)

    def benchmark_fn(self):
        self.output = self.layers(self.x).detach()


def get_benchmark():
    return BaselineQuietInference()
