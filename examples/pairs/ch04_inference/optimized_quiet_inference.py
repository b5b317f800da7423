"""Inference without gradients. Autograd is off."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedQuietInference(BaseBenchmark):
    def setup(self):
        self.layer = torch.nn.Linear(64, 64)
        self.x = torch.rand(64, 64)

    def benchmark_fn(self):
        with torch.inference_mode():
            self.output = self.layer(self.x).clone()


def get_benchmark():
    return OptimizedQuietInference()
