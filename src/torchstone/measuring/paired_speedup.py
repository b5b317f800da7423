"""Computes a speedup from times that were taken in pairs, with a bootstrap interval over the pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from torchstone.measuring.speedup import Speedup, minimum_detectable_effect, outcome_of
from torchstone.measuring.student_t import Z_95, student_t_95

LEAST_ROUNDS = 3
"""Paired rounds that an interval needs."""
LEAST_ROUNDS_FOR_DEPENDENCE = 6
"""Rounds from which the correlation of each round with the next is looked at."""
WINSORISED_SHARE = 0.2
"""Of the rounds, pulled in at either end."""

_RESAMPLES = 2000
_SEED = 20240229
_Z_90 = NormalDist().inv_cdf(0.9)
_MOST_CORRELATION = 0.9

Floats = NDArray[np.float64]


def speedup_of_pairs(candidate: Sequence[float], reference: Sequence[float]) -> Speedup | None:
    """The speedup of times that were taken in pairs, one after the other; None: too few pairs, or no time at all."""
    if len(candidate) < LEAST_ROUNDS or min(*candidate, *reference) <= 0:
        return None
    return speedup_of_logs(np.log(np.asarray(reference)) - np.log(np.asarray(candidate)))


def speedup_of_logs(logs: Floats) -> Speedup:
    """The speedup of a logarithm of reference over candidate time for each round."""
    ordered = np.sort(logs)
    centre = float(_winsorised_means(ordered[np.newaxis, :])[0])
    low, high = _interval(ordered, centre, dependence_factor(logs))
    return Speedup(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        outcome=outcome_of(math.exp(low), math.exp(high)),
        minimum_detectable_effect=minimum_detectable_effect((high - low) / 2),
    )


def _winsorised_means(ordered_rows: Floats) -> Floats:
    """Mean of every row after pulling its outer fifths in to the nearest value that stays."""
    count = ordered_rows.shape[1]
    cut = int(WINSORISED_SHARE * count)
    kept = ordered_rows[:, cut : count - cut]
    return np.asarray((kept.sum(axis=1) + cut * (kept[:, 0] + kept[:, -1])) / count, dtype=np.float64)


def _interval(ordered: Floats, centre: float, dependence: float) -> tuple[float, float]:
    """Bootstrap percentiles, widened by dependence and by what Student's t adds over the normal for this few rounds."""
    count = ordered.size
    estimates = _winsorised_means(np.sort(ordered[_resamples(count)], axis=1))
    low, high = (float(value) for value in np.percentile(estimates, (2.5, 97.5)))
    widening = dependence * student_t_95(count - 1) / Z_95 * math.sqrt(count / (count - 1))
    return centre - widening * max(centre - low, 0.0), centre + widening * max(high - centre, 0.0)


@lru_cache(maxsize=16)
def _resamples(count: int) -> NDArray[np.intp]:
    """Indices of the bootstrap samples, each with its mirror image: swapping the parties then inverts the interval."""
    drawn = np.random.default_rng(_SEED).integers(0, count, size=(_RESAMPLES // 2, count))
    return np.concatenate((drawn, count - 1 - drawn)).astype(np.intp)


def dependence_factor(logs: Floats) -> float:
    """By how much an interval must be wider because rounds resemble the ones before them.

    A drift that lasts several rounds makes them one observation rather than several. From the correlation of each round
    with the next, as far as it is larger than chance makes it: sqrt((1 + r) / (1 - r)).
    """
    count = logs.size
    around = logs - logs.mean()
    total = float(around @ around)
    if count < LEAST_ROUNDS_FOR_DEPENDENCE or total <= 0:
        return 1.0
    correlation = float(around[1:] @ around[:-1]) / total
    if correlation <= _Z_90 / math.sqrt(count):
        return 1.0
    correlation = min(correlation, _MOST_CORRELATION)
    return math.sqrt((1 + correlation) / (1 - correlation))
