"""`validate_result()` returns a text where the result is wrong, and None where it is right. In Python."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineValidation(BaseBenchmark):
    def setup(self):
        self.x = torch.randint(0, 50, (4000,))

    def benchmark_fn(self):
        self.counts = torch.zeros(50, dtype=torch.int64)
        for value in self.x.tolist():
            self.counts[value] += 1

    def validate_result(self):
        return None if int(self.counts.sum()) == self.x.numel() else "counts do not add up"


def get_benchmark():
    return BaselineValidation()
