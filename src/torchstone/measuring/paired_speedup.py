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
"""Least number of paired rounds for an interval."""
LEAST_ROUNDS_FOR_DEPENDENCE = 6
"""Least number of rounds for which the correlation of each round with the next is computed."""
WINSORISED_SHARE = 0.2
"""Share of the rounds that is replaced by the nearest remaining value, at each end."""

_RESAMPLES = 2000
"""Number of bootstrap samples."""
_SEED = 20240229
_Z_90 = NormalDist().inv_cdf(0.9)
"""Correlations up to this, divided by the root of the number of rounds, count as chance."""
_MOST_CORRELATION = 0.9
"""Larger correlations count as this, so that the widening stays finite."""

Floats = NDArray[np.float64]


def speedup_of_pairs(candidate: Sequence[float], reference: Sequence[float]) -> Speedup | None:
    """The speedup from times that were taken in pairs; None: there are too few pairs, or a time is not positive."""
    if len(candidate) < LEAST_ROUNDS or min(*candidate, *reference) <= 0:
        return None
    return speedup_of_logs(np.log(np.asarray(reference)) - np.log(np.asarray(candidate)))


def speedup_of_logs(logs: Floats) -> Speedup:
    """The speedup from the logarithms of each round's reference time divided by candidate time."""
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
    """Mean of each row, with its lowest and highest fifth replaced by the nearest remaining value."""
    count = ordered_rows.shape[1]
    cut = int(WINSORISED_SHARE * count)
    kept = ordered_rows[:, cut : count - cut]
    return np.asarray((kept.sum(axis=1) + cut * (kept[:, 0] + kept[:, -1])) / count, dtype=np.float64)


def _interval(ordered: Floats, centre: float, dependence: float) -> tuple[float, float]:
    """Bootstrap percentiles, widened by ``dependence`` and by Student's t over the normal quantile for few rounds."""
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
    """Factor on the interval because rounds resemble the rounds before them.

    A drift that lasts several rounds makes them one observation rather than several. The factor is
    sqrt((1 + r) / (1 - r)), with the correlation r of each round with the next; 1 if r may be chance.
    """
    count = logs.size
    centred = logs - logs.mean()
    total = float(centred @ centred)
    if count < LEAST_ROUNDS_FOR_DEPENDENCE or total <= 0:
        return 1.0
    correlation = float(centred[1:] @ centred[:-1]) / total
    if correlation <= _Z_90 / math.sqrt(count):
        return 1.0
    correlation = min(correlation, _MOST_CORRELATION)
    return math.sqrt((1 + correlation) / (1 - correlation))
