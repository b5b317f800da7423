"""A GELU of a sum on a GPU. One kernel by torch.compile."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class OptimizedCudaFused(BaseBenchmark):
    def setup(self):
        if not torch.cuda.is_available():
            raise SkipBenchmark("needs a CUDA device")
        self.x, self.y = (torch.rand(16 << 20, device="cuda") for _ in range(2))
        self.fused = torch.compile(lambda x, y: torch.nn.functional.gelu(x + y))

    def benchmark_fn(self):
        self.output = self.fused(self.x, self.y)


def get_benchmark():
    return OptimizedCudaFused()
