"""Computes the time per call with a 95 % interval from an implementation's samples. No device, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchstone.measuring.student_t import student_t_95
from torchstone.measuring.trimmed_means import trimmed_count, trimmed_mean

LEAST_SAMPLES = 5
"""Least samples for a computed interval. With fewer it would be far too narrow or infinite; the range is used then."""


class Estimate(NamedTuple):
    """Time per call with its interval, in nanoseconds."""

    time_ns: float
    low_ns: float
    """Lower end of the 95 % interval."""
    high_ns: float

    @property
    def relative_half_width(self) -> float:
        return (self.high_ns - self.low_ns) / 2 / self.time_ns if self.time_ns > 0 else math.inf


def estimate(samples_ns: Sequence[float]) -> Estimate:
    """Trimmed mean of the samples with Yuen's interval. A single disturbed block does not move it."""
    values = np.asarray(samples_ns, dtype=np.float64)
    if values.size < LEAST_SAMPLES:
        middle = float(values.mean())
        return Estimate(middle, float(values.min()), float(values.max()))
    middle, error = trimmed_mean(values)
    freedom = values.size - 2 * trimmed_count(values.size) - 1
    width = student_t_95(freedom) * error
    return Estimate(middle, max(0.0, middle - width), middle + width)
