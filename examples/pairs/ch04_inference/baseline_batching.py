"""Requests that share weights, with a metric of their own: requests per call. One at a time."""

import torch

from torchstone.harness import BaseBenchmark


class BaselineBatching(BaseBenchmark):
    def setup(self):
        self.weights, self.requests = torch.rand(128, 128), torch.rand(32, 128)

    def benchmark_fn(self):
        self.output = torch.stack([request @ self.weights for request in self.requests])

    def get_custom_metrics(self):
        return {"requests_per_call": float(len(self.requests))}


def get_benchmark():
    return BaselineBatching()
