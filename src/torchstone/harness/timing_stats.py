"""Computes statistics from samples: mean and percentiles of calls and of token latencies, and means of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.harness.benchmark_process_messages import Block
from torchstone.harness.results import InferenceStats, LatencyStats, TimingStats
from torchstone.measuring import distribution


def timing_stats(blocks: Sequence[Block], percentiles: Sequence[float]) -> TimingStats | None:
    """Statistics over all samples of the blocks. None: there is no sample."""
    samples = tuple(sample for block in blocks for sample in block.times_ms)
    if not samples:
        return None
    shape = distribution(samples, percentiles)
    return TimingStats(
        mean_ms=shape.mean,
        median_ms=shape.median,
        std_ms=shape.std,
        min_ms=shape.min,
        max_ms=shape.max,
        p25_ms=shape.p25,
        p50_ms=shape.p50,
        p75_ms=shape.p75,
        p90_ms=shape.p90,
        p95_ms=shape.p95,
        p99_ms=shape.p99,
        percentiles=shape.percentiles,
        iterations=len(samples),
        raw_times_ms=samples,
        block_sizes=tuple(len(block.times_ms) for block in blocks),
    )


def block_means(blocks: Sequence[Block]) -> list[float]:
    """Mean of each block in ms, at least 1e-6, since a coarse clock may measure 0."""
    return [max(sum(block.times_ms) / len(block.times_ms), 1e-6) for block in blocks if block.times_ms]


def inference_stats(ttft_ms: Sequence[float], tpot_ms: Sequence[float]) -> InferenceStats | None:
    """Statistics of token latencies. None: the benchmark reported none."""
    if not ttft_ms and not tpot_ms:
        return None
    return InferenceStats(_latency(ttft_ms), _latency(tpot_ms))


def _latency(times_ms: Sequence[float]) -> LatencyStats | None:
    if not times_ms:
        return None
    shape = distribution(times_ms)
    return LatencyStats(shape.mean, shape.p50, shape.p90, shape.p95, shape.p99, shape.count, tuple(times_ms))
