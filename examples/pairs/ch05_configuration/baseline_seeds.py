"""Both sides get the same seed, so that random inputs are the same. Row by row."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineSeeds(BaseBenchmark):
    def setup(self):
        self.x = torch.randn(400, 100)

    def benchmark_fn(self):
        self.output = torch.stack([row.max() for row in self.x])


def get_benchmark():
    return BaselineSeeds()
