"""Small trees of benchmark files, and answers of a fake runner for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchstone.harness.results import BenchmarkResult, Comparison, SideStatus, StageWatch, TimingStats

SOURCE = "class Work:\n    def setup(self): ...\n    def benchmark_fn(self): ...\n    def teardown(self): ...\n"


def write_tree(root: Path, names: Iterable[str], text: str = SOURCE) -> Path:
    """Write each named file (``ch1/baseline_moe.py``) with the text and its own name in a comment."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}# {name}\n")
    return root


def write_pairs(root: Path, *names: str) -> Path:
    """Write a pair for each ``ch1/moe``."""
    sides = ("baseline", "optimized")
    parts = [name.rpartition("/") for name in names]
    return write_tree(root, (f"{folder}/{side}_{name}.py" for folder, _, name in parts for side in sides))


def timing(median_ms: float, spread: float = 0.001, samples: int = 30) -> TimingStats:
    """Samples in blocks of three around the median, in a fixed order."""
    raw = tuple(median_ms * (1 + spread * ((index * 7) % 5 - 2)) for index in range(samples))
    same = dict.fromkeys(("p25_ms", "p50_ms", "p75_ms", "p90_ms", "p95_ms", "p99_ms"), median_ms)
    return TimingStats(
        mean_ms=median_ms,
        median_ms=median_ms,
        std_ms=median_ms * spread,
        min_ms=min(raw),
        max_ms=max(raw),
        percentiles={},
        iterations=samples,
        raw_times_ms=raw,
        block_sizes=(3,) * (samples // 3),
        **same,
    )


def side(median_ms: float = 1.0, **more: float) -> BenchmarkResult:
    return BenchmarkResult(status="succeeded", timing=timing(median_ms, **more))  # type: ignore[arg-type]


def compared(name: str, baseline_ms: float = 2.0, optimized_ms: float = 1.0, width: float = 0.01) -> Comparison:
    """Both sides succeeded; the interval is `width` wide to both sides."""
    speedup = baseline_ms / optimized_ms
    return Comparison(
        name=name,
        baseline=side(baseline_ms),
        optimized=side(optimized_ms),
        speedup=speedup,
        speedup_low=speedup * (1 - width),
        speedup_high=speedup * (1 + width),
        regression=speedup * (1 + width) < 1 / 1.05,
    )


def failed(name: str, status: SideStatus = "failed", message: str = "ValueError: no such layer") -> Comparison:
    """The optimized side did not succeed, in its setup."""
    other = BenchmarkResult(
        status=status,
        stage="setup",
        errors=() if status == "skipped" else (message,),
        skip_reason=message if status == "skipped" else "",
        suggestion="raise --timeout-multiplier" if status == "timeout" else "",
        watchdog={"setup": StageWatch("failed", 1.5)},
    )
    return Comparison(name=name, baseline=side(2.0), optimized=other)
