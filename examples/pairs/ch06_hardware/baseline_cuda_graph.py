"""Many small kernels on a GPU. Launched one by one."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class BaselineCudaGraph(BaseBenchmark):
    def setup(self):
        if not torch.cuda.is_available():
            raise SkipBenchmark("needs a CUDA device")
        self.x = torch.rand(4096, device="cuda")
        self.output = torch.empty_like(self.x)
        self.graph = None

    def benchmark_fn(self):
        y = self.x
        for _ in range(50):
            y = y * 0.99
        self.output = y


def get_benchmark():
    return BaselineCudaGraph()
