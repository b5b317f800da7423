"""The request to run one pair (a baseline and an optimized file), the interface of its runner, and a fake for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.benchmarks import BenchmarkConfig
from torchstone.harness.results import BenchmarkResult, Comparison


class PairOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Request to run and compare two benchmark files."""

    name: str
    """Name of the pair in messages, NVTX ranges and folders: `ch13/moe`."""
    root: Path
    """The folder that holds the chapters. It is on `sys.path` while the files load."""
    baseline: Path
    optimized: Path
    device: str
    """``cpu`` or ``cuda:N``."""
    seed: int
    """Seed of both sides, unless their configuration sets another."""
    config: BenchmarkConfig = BenchmarkConfig()
    """The caller's settings. The benchmark's own override them."""
    overrides: BenchmarkConfig = BenchmarkConfig()
    """Settings of the command line. They override the benchmark's own."""
    regression_threshold_pct: float = 5.0
    artifacts: Path
    """A folder of this pair's own, for logs and profiles. It may not exist yet."""


class PairRunner(Protocol):
    """Carries out one order. May be called from several threads at once; device work waits for the device's lane."""

    def run(self, order: PairOrder) -> Comparison:
        """Run the pair and compare its sides. A failure of a benchmark is a result, never an exception."""
        ...


class FakePairRunner:
    """Returns prepared comparisons by the order's name, for tests of the code that uses a runner."""

    def __init__(self, answers: Mapping[str, Comparison]) -> None:
        self._answers = dict(answers)
        self.orders: list[PairOrder] = []

    def run(self, order: PairOrder) -> Comparison:
        self.orders.append(order)
        failed = BenchmarkResult(status="failed", stage="load", errors=("the fake has no answer for this pair",))
        return self._answers.get(order.name) or Comparison(name=order.name, baseline=failed, optimized=failed)
