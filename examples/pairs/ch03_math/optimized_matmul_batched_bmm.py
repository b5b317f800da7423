"""Products of many matrices. Paired with this baseline, which is more specific than `baseline_matmul`. One call."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedMatmulBatched(BaseBenchmark):
    def setup(self):
        self.a, self.b = torch.rand(64, 32, 32), torch.rand(64, 32, 32)

    def benchmark_fn(self):
        self.output = torch.bmm(self.a, self.b)


def get_benchmark():
    return OptimizedMatmulBatched()
