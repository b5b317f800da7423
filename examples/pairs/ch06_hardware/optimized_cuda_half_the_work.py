"""Half the work on a GPU: the speedup is 2. Two passes."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class OptimizedCudaHalfTheWork(BaseBenchmark):
    def setup(self):
        if not torch.cuda.is_available():
            raise SkipBenchmark("needs a CUDA device")
        self.x = torch.rand(64 << 20, device="cuda")

    def benchmark_fn(self):
        for _ in range(2):
            torch.sigmoid(self.x)


def get_benchmark():
    return OptimizedCudaHalfTheWork()
