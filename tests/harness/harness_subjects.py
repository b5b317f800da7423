"""Benchmark classes that tests hand over as objects; a module of its own, as a user's would be."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from torchstone.harness import BaseBenchmark, BenchmarkConfig


class Sized(BaseBenchmark):
    """Tells what it was made with, and which process runs it."""

    def __init__(self, size: int, *, factor: float = 1.0) -> None:
        self.size = size
        self.factor = factor

    def setup(self) -> None:
        self.x = torch.ones(self.size)

    def benchmark_fn(self) -> dict[str, Any]:
        time.sleep(0.0005 * self.factor)
        return {"size": self.size, "pid": os.getpid(), "elements": self.x.numel()}

    def get_config(self) -> BenchmarkConfig:
        return BenchmarkConfig(warmup=3)


class NotOurs:
    """A benchmark without our base class: it crosses by its pickled state."""

    def __init__(self, size: int) -> None:
        self.size = size

    def setup(self) -> None:
        pass

    def benchmark_fn(self) -> dict[str, int]:
        return {"size": self.size, "pid": os.getpid()}

    def teardown(self) -> None:
        pass
