"""Data of a timing: time per call of candidate and reference, the distribution over rounds, and the speedup."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from torchstone.measuring.speed_of_light import Attainment
from torchstone.measuring.speedup import Speedup
from torchstone.measuring.times_per_call import Clocked


class Distribution(msgspec.Struct, frozen=True):
    """Statistics of a set of samples. The name of the field that holds it states the unit."""

    count: int
    mean: float
    median: float
    std: float
    """Sample standard deviation; zero for a single sample."""
    min: float
    max: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    percentiles: dict[str, float] = {}
    """Further percentiles that were requested: ``{"99.9": …}``."""


class Timing(msgspec.Struct, frozen=True):
    """The result of a measurement. The cost of calling (the shim) is subtracted from both parties."""

    candidate_ns: float
    """Time per call, the median over rounds. It may be 0 or less if the cost of calling exceeds it."""
    reference_ns: float
    shim_ns: float
    """The shim's time per call, which was subtracted."""
    rounds: int
    """Rounds in which both parties were measured."""
    candidate_rounds_ns: Distribution
    """Times per call, one sample for each round."""
    reference_rounds_ns: Distribution
    speedup: Speedup | None = None
    """None: the samples do not resolve it, and `unresolved` says why."""
    unresolved: str = ""
    attainment: Attainment | None = None
    """Share of the device's limit that the parties reach; None without a speedup, or if the limit is not known."""
    clocked: Clocked = "calls"
    """Whether the times above, and the speedup, include launches."""
    candidate_call_ns: float | None = None
    """Time per call if calls are made one by one: the host's time or the device's, whichever is longer."""
    reference_call_ns: float | None = None

    @property
    def resolved(self) -> bool:
        """Whether there is a speedup."""
        return self.speedup is not None


def distribution(samples: Iterable[float], percentiles: Iterable[float] = ()) -> Distribution:
    """Compute statistics of the samples. `percentiles`: further ones to compute, in percent."""
    values = np.sort(np.fromiter(samples, dtype=np.float64))
    if values.size == 0:
        raise ValueError("a distribution needs at least one sample")
    p25, p50, p75, p90, p95, p99 = (float(value) for value in np.percentile(values, (25, 50, 75, 90, 95, 99)))
    return Distribution(
        count=int(values.size),
        mean=float(np.clip(values.mean(), values[0], values[-1])),
        median=p50,
        std=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        min=float(values[0]),
        max=float(values[-1]),
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        percentiles={f"{percent:g}": float(np.percentile(values, percent)) for percent in percentiles},
    )
