"""BENCHMARK FILES: what a user's benchmark is, how it is configured, how it is loaded. Profiling uses it too."""

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
