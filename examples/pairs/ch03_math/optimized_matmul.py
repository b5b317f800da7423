"""A product of matrices; `get_verify_output()` offers the result for comparison. One matrix product."""

import torch

from torchstone.harness import BaseBenchmark


class OptimizedMatmul(BaseBenchmark):
    def setup(self):
        self.a, self.b = torch.rand(48, 48), torch.rand(48, 48)

    def benchmark_fn(self):
        self.product = self.a @ self.b

    def get_verify_output(self):
        return self.product


def get_benchmark():
    return OptimizedMatmul()
