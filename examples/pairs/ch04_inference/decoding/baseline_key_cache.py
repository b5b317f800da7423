"""A cache of keys that grows by one token a step. Copied at every step."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineKeyCache(BaseBenchmark):
    def setup(self):
        self.keys = torch.rand(128, 64)
        self.cache = torch.empty(128, 64)

    def benchmark_fn(self):
        cache = torch.empty(0, 64)
        for key in self.keys:
            cache = torch.cat([cache, key[None]])
        self.output = cache


def get_benchmark():
    return BaselineKeyCache()
