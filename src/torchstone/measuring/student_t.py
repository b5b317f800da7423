"""Two-sided 95 % quantiles of the normal and of Student's t distribution, for confidence intervals."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

Z_95 = NormalDist().inv_cdf(0.975)
_BISECTION_STEPS = 60
"""Bisection steps: enough that the interval is smaller than a float's last digit."""


@lru_cache(maxsize=1024)
def student_t_95(freedom: int) -> float:
    """The t for which 95 % of Student's distribution lies within ±t. NumPy and the standard library lack it."""
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < 0.95 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _share_within(angle: float, freedom: int) -> float:
    """P(|t| <= sqrt(freedom) * tan(angle)), the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    cosine, odd = math.cos(angle), bool(freedom % 2)
    term, series = (cosine if odd else 1.0), 0.0
    for index in range(1, freedom // 2 + 1):
        series += term
        term *= cosine**2 * (2 * index / (2 * index + 1) if odd else (2 * index - 1) / (2 * index))
    series *= math.sin(angle)
    return 2 / math.pi * (angle + series) if odd else series
