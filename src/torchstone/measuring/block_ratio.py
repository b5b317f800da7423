"""Computes how many times faster one benchmark is than another, from blocks of calls that they took in turn.

Each side's time is a quantile of its block means. On a CPU a low one, because other programs only make blocks longer.
On a GPU the median. The interval is a bootstrap over rounds, each with a block of either side. Swapping the
sides inverts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchstone.measuring.long_blocks import PLACEMENT_DOUBT
from torchstone.measuring.student_t import Z_95, student_t_95

CPU_QUANTILE = 0.2
CUDA_QUANTILE = 0.5
CPU_PLACEMENT_DOUBT = 0.05
CUDA_PLACEMENT_DOUBT = PLACEMENT_DOUBT
"""Relative difference of the times of the same code in two processes, because their memory lies at other addresses. It
lasts as long as both live, so more rounds do not show it. The CPU's is measured by benchmarks/harness.py."""
HOST_DOUBT = 0.05
"""The same if a GPU waits for the host: two processes issue the same calls on cores of different speed."""
LEAST_ROUNDS = 5
"""Fewer rounds give no interval: it would be far too narrow."""

_RESAMPLES = 2000
_SEED = 20240229
Floats = NDArray[np.float64]


class BlockRatio(msgspec.Struct, frozen=True):
    """Baseline time divided by optimized time, with its 95 % interval."""

    ratio: float
    low: float | None = None
    """Lower end of the interval. None: too few rounds."""
    high: float | None = None


def block_ratio(
    baseline: Sequence[float],
    optimized: Sequence[float],
    quantile: float,
    is_paired: bool = True,
    placement_doubt: float = 0.0,
) -> BlockRatio:
    """Compute the ratio from block means. `is_paired`: the n-th blocks of both sides are from the same round.

    Without `placement_doubt` the interval holds for these two processes only; with it, for any two with the same code.
    """
    ours, theirs = (np.asarray(blocks, dtype=np.float64) for blocks in (baseline, optimized))
    if is_paired:
        rounds = min(ours.size, theirs.size)
        ours, theirs = ours[:rounds], theirs[:rounds]
    if not ours.size or not theirs.size or min(ours.min(), theirs.min()) <= 0.0:
        raise ValueError("a ratio needs positive times of both sides")
    centre = _log_quantile(ours, quantile) - _log_quantile(theirs, quantile)
    if min(ours.size, theirs.size) < LEAST_ROUNDS:
        return BlockRatio(math.exp(centre))
    below, above = (
        math.hypot(width, placement_doubt) for width in _widths(ours, theirs, quantile, is_paired, float(centre))
    )
    return BlockRatio(math.exp(centre), math.exp(centre - below), math.exp(centre + above))


def _log_quantile(blocks: Floats, quantile: float) -> Floats:
    """Logarithm of the quantile, along the last axis."""
    return np.asarray(np.log(np.quantile(blocks, quantile, axis=-1)))


def _widths(ours: Floats, theirs: Floats, quantile: float, is_paired: bool, centre: float) -> tuple[float, float]:
    """Widths of the interval below and above the logarithm of the ratio."""
    if is_paired:
        draws = resampled_rounds(ours.size)
        estimates = _log_quantile(ours[draws], quantile) - _log_quantile(theirs[draws], quantile)
    else:
        estimates = _unpaired_estimates(ours, theirs, quantile)
    low, high = (float(value) for value in np.percentile(estimates, (2.5, 97.5)))
    rounds = min(ours.size, theirs.size)
    widening = student_t_95(rounds - 1) / Z_95 * math.sqrt(rounds / (rounds - 1))
    return widening * max(0.0, centre - low), widening * max(0.0, high - centre)


def _unpaired_estimates(ours: Floats, theirs: Floats, quantile: float) -> Floats:
    """Bootstrap estimates with both sides drawn independently.

    Each half of the draws is used once for each side, so that swapping the sides inverts the interval.
    """
    first, second = (_log_quantile(side[resampled_rounds(side.size)], quantile) for side in (ours, theirs))
    half = _RESAMPLES // 2
    return np.concatenate((first[:half] - second[half:], first[half:] - second[:half]))


@lru_cache(maxsize=16)
def resampled_rounds(count: int) -> NDArray[np.intp]:
    """Indices of bootstrap samples, one row each: runs of neighbouring rounds, since a disturbance lasts several."""
    length = max(1, round(count ** (1 / 3)))
    runs = -(-count // length)
    starts = np.random.default_rng(_SEED).integers(0, count, size=(_RESAMPLES, runs, 1))
    drawn = (starts + np.arange(length)) % count
    return drawn.reshape(_RESAMPLES, -1)[:, :count].astype(np.intp)
