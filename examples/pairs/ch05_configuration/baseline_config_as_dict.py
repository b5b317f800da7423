"""The configuration may be a dict. Two passes."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineConfigAsDict(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(300_000)

    def benchmark_fn(self):
        self.output = self.x.neg().neg()

    def get_config(self):
        return {"iterations": 30, "warmup": 3}


def get_benchmark():
    return BaselineConfigAsDict()
