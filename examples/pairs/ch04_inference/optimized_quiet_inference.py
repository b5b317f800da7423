"""Inference without gradients. Autograd is off."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedQuietInference(BaseBenchmark):
    def setup(self):
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(20)))
        self.x = torch.rand(4, 16)

    def benchmark_fn(self):
        with torch.inference_mode():
            self.output = self.layers(self.x).clone()


def get_benchmark():
    return OptimizedQuietInference()
