"""Products of many matrices. Paired with this baseline, which is more specific than `baseline_matmul`. A loop."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineMatmulBatched(BaseBenchmark):
    def setup(self):
        self.a, self.b = torch.rand(64, 32, 32), torch.rand(64, 32, 32)

    def benchmark_fn(self):
        self.output = torch.stack([x @ y for x, y in zip(self.a, self.b, strict=True)])


def get_benchmark():
    return BaselineMatmulBatched()
