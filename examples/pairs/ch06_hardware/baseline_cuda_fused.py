"""A GELU of a sum on a GPU. Two kernels."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class BaselineCudaFused(BaseBenchmark):
    def setup(self):
        if not torch.cuda.is_available():
            raise SkipBenchmark("needs a CUDA device")
        self.x, self.y = (torch.rand(16 << 20, device="cuda") for _ in range(2))

    def benchmark_fn(self):
        self.output = torch.nn.functional.gelu(self.x + self.y)


def get_benchmark():
    return BaselineCudaFused()
