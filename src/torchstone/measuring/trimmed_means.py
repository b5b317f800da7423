"""Computes means that a few outliers do not move: of the middle samples, or of the lowest third."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

TRIMMED_SHARE = 0.2
"""Share of the samples that is left out at each end."""
LOWEST = 3
"""The mean is taken over the lowest 1 / LOWEST of the samples, for times that a busy machine can only lengthen."""

Floats = NDArray[np.float64]


def low_third(values: Floats) -> Floats:
    """The mean of the lowest third, along the last axis. It is less noisy than a quantile, with no longer tail."""
    ordered = np.sort(values, axis=-1)
    return np.asarray(ordered[..., : -(-values.shape[-1] // LOWEST)].mean(axis=-1))


def trimmed_mean(values: Floats) -> tuple[float, float]:
    """The mean of the samples in the middle, and its standard error (Yuen's)."""
    ordered = np.sort(values)
    cut = trimmed_count(ordered.size)
    winsorised = np.clip(ordered, ordered[cut], ordered[ordered.size - 1 - cut])
    kept = ordered.size - 2 * cut
    error = float(winsorised.std(ddof=1)) * math.sqrt(ordered.size) / kept
    return float(ordered[cut : ordered.size - cut].mean()), error


def trimmed_count(samples: int) -> int:
    """How many of the samples are left out at each end."""
    return int(TRIMMED_SHARE * samples)
