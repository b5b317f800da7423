"""Computes means that a few outliers do not move: of the middle samples, or of the lowest third."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

TRIMMED_SHARE = 0.2
"""Of the samples, left out at either end."""
LOWEST = 3
"""What a busy machine can only lengthen: the mean of the lowest of so many parts of the samples."""

Floats = NDArray[np.float64]


def low_third(values: Floats) -> Floats:
    """The mean of the lowest third, along the last axis: less noise than one quantile, and no longer tail."""
    ordered = np.sort(values, axis=-1)
    return np.asarray(ordered[..., : -(-values.shape[-1] // LOWEST)].mean(axis=-1))


def trimmed_mean(values: Floats) -> tuple[float, float]:
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
