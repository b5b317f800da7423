"""BASELINE AGAINST OPTIMIZED: find pairs of benchmark files, run both sides in turn, compare, report."""

from torchstone.harness.discovery import Discovery, Pair, Problem, discover, discover_benchmarks
from torchstone.harness.request import PairsRequest
from torchstone.harness.run import PairsObserver, PairsResult, run_pairs

__all__ = [
    "Discovery",
    "Pair",
    "PairsObserver",
    "PairsRequest",
    "PairsResult",
    "Problem",
    "discover",
    "discover_benchmarks",
    "run_pairs",
]
