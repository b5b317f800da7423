"""Many small kernels on a GPU. Launched as one CUDA graph."""

import torch

from torchstone.harness import BaseBenchmark, SkipBenchmark


class OptimizedCudaGraph(BaseBenchmark):
    def setup(self):
        if not torch.cuda.is_available():
            raise SkipBenchmark("needs a CUDA device")
        self.x = torch.rand(4096, device="cuda")
        self.output = torch.empty_like(self.x)
        self.graph = None

    def benchmark_fn(self):
        if self.graph is None:
            self.graph = self._captured()
        self.graph.replay()

    def _captured(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.x
            for _ in range(50):
                y = y * 0.99
            self.output.copy_(y)
        return graph


def get_benchmark():
    return OptimizedCudaGraph()
