"""Benchmark files: their protocol, settings and loading. Used by the harness and by profiling."""

from torchstone.benchmarks.config import BenchmarkConfig, BenchmarkDefaults, BenchmarkMode
from torchstone.benchmarks.protocol import BaseBenchmark, Benchmark, SkipBenchmark

__all__ = [
    "BaseBenchmark",
    "Benchmark",
    "BenchmarkConfig",
    "BenchmarkDefaults",
    "BenchmarkMode",
    "SkipBenchmark",
]
