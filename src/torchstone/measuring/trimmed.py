"""Trimmed means: a few outliers do not move them. For times, which have long tails."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

TRIMMED_SHARE = 0.2
"""Of the samples, left out at either end."""


def trimmed_mean(values: NDArray[np.float64]) -> tuple[float, float]:
    """Of the samples in the middle, and its standard error (Yuen's)."""
    ordered = np.sort(values)
    cut = trimmed_count(ordered.size)
    pulled_in = np.clip(ordered, ordered[cut], ordered[ordered.size - 1 - cut])
    kept = ordered.size - 2 * cut
    error = float(pulled_in.std(ddof=1)) * math.sqrt(ordered.size) / kept
    return float(ordered[cut : ordered.size - cut].mean()), error


def trimmed_count(samples: int) -> int:
    """How many are left out at either end."""
    return int(TRIMMED_SHARE * samples)
