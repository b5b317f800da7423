"""The harness: finds pairs of baseline and optimized benchmark files, runs both in turn, compares them, reports.

The public names. They are loaded when they are first used: importing a base class must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "BaseBenchmark": "torchstone.benchmarks.protocol",
    "Benchmark": "torchstone.benchmarks.protocol",
    "BenchmarkConfig": "torchstone.benchmarks.config",
    "BenchmarkDefaults": "torchstone.benchmarks.config",
    "BenchmarkHarness": "torchstone.harness.benchmark_harness",
    "BenchmarkMode": "torchstone.benchmarks.config",
    "BenchmarkResult": "torchstone.harness.results",
    "BenchmarkRun": "torchstone.harness.results",
    "Comparison": "torchstone.harness.results",
    "Discovery": "torchstone.harness.discovery",
    "LocalPairRunner": "torchstone.harness.local_runner",
    "MemoryStats": "torchstone.harness.results",
    "Pair": "torchstone.harness.discovery",
    "PairOrder": "torchstone.harness.pair_runner",
    "PairsObserver": "torchstone.harness.run",
    "PairsRequest": "torchstone.harness.request",
    "PairsResult": "torchstone.harness.run",
    "ProfilerMetrics": "torchstone.harness.results",
    "SkipBenchmark": "torchstone.benchmarks.protocol",
    "compare_baseline_optimized": "torchstone.harness.benchmark_harness",
    "compare_benchmarks": "torchstone.harness.benchmark_harness",
    "discover": "torchstone.harness.discovery",
    "discover_benchmarks": "torchstone.harness.discovery",
    "load_benchmark": "torchstone.benchmarks.loading",
    "reset_gpu_state": "torchstone.harness.process_state",
    "run_pairs": "torchstone.harness.run",
}

__all__ = [
    "BaseBenchmark",
    "Benchmark",
    "BenchmarkConfig",
    "BenchmarkDefaults",
    "BenchmarkHarness",
    "BenchmarkMode",
    "BenchmarkResult",
    "BenchmarkRun",
    "Comparison",
    "Discovery",
    "LocalPairRunner",
    "MemoryStats",
    "Pair",
    "PairOrder",
    "PairsObserver",
    "PairsRequest",
    "PairsResult",
    "ProfilerMetrics",
    "SkipBenchmark",
    "compare_baseline_optimized",
    "compare_benchmarks",
    "discover",
    "discover_benchmarks",
    "load_benchmark",
    "reset_gpu_state",
    "run_pairs",
]

if TYPE_CHECKING:
    from torchstone.benchmarks.config import BenchmarkConfig, BenchmarkDefaults, BenchmarkMode
    from torchstone.benchmarks.loading import load_benchmark
    from torchstone.benchmarks.protocol import BaseBenchmark, Benchmark, SkipBenchmark
    from torchstone.harness.benchmark_harness import BenchmarkHarness, compare_baseline_optimized, compare_benchmarks
    from torchstone.harness.discovery import Discovery, Pair, discover, discover_benchmarks
    from torchstone.harness.local_runner import LocalPairRunner
    from torchstone.harness.pair_runner import PairOrder
    from torchstone.harness.process_state import reset_gpu_state
    from torchstone.harness.request import PairsRequest
    from torchstone.harness.results import BenchmarkResult, BenchmarkRun, Comparison, MemoryStats, ProfilerMetrics
    from torchstone.harness.run import PairsObserver, PairsResult, run_pairs


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchstone.harness' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
