"""Inference without gradients. Autograd records."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineQuietInference(BaseBenchmark):
    def setup(self):
        self.layer = torch.nn.Linear(64, 64)
        self.x = torch.rand(64, 64)

    def benchmark_fn(self):
        self.output = self.layer(self.x).detach()


def get_benchmark():
    return BaselineQuietInference()
