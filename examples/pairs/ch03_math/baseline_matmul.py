"""A product of matrices; `get_verify_output()` offers the result for comparison. One dot product at a time."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineMatmul(BaseBenchmark):
    def setup(self):
        self.a, self.b = torch.rand(48, 48), torch.rand(48, 48)

    def benchmark_fn(self):
        columns = [torch.stack([row @ column for row in self.a]) for column in self.b.t()]
        self.product = torch.stack(columns, dim=1)

    def get_verify_output(self):
        return self.product


def get_benchmark():
    return BaselineMatmul()
