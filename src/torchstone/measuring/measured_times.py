"""Data of a timing: time per call of candidate and reference, the distribution over rounds, and the speedup."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from torchstone.measuring.speed_of_light import Attainment
from torchstone.measuring.speedup import Speedup
from torchstone.measuring.times_per_call import Clocked


class Distribution(msgspec.Struct, frozen=True):
    """The shape of a set of samples, in the unit of the samples: the field that holds one names the unit."""

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
    """The ones asked for besides: ``{"99.9": …}``."""


class Timing(msgspec.Struct, frozen=True):
    """The result of a measurement. The cost of calling (the shim) is subtracted from both parties."""

    candidate_ns: float
    """Per call, the median over rounds; not positive if the call's own cost hides it."""
    reference_ns: float
    shim_ns: float
    """What was taken off, per call."""
    rounds: int
    """Rounds in which both parties were measured."""
    candidate_rounds_ns: Distribution
    """Per call, one sample a round."""
    reference_rounds_ns: Distribution
    speedup: Speedup | None = None
    """None: the samples do not resolve it, and `unresolved` says why."""
    unresolved: str = ""
    attainment: Attainment | None = None
    """How far the parties are from what the device allows; None unless resolved, or if the limit is not known."""
    clocked: Clocked = "calls"
    """What the times above are of, and the speedup."""
    candidate_call_ns: float | None = None
    """Per call, when each is started on its own: what the host needs or the device, whichever is longer."""
    reference_call_ns: float | None = None

    @property
    def resolved(self) -> bool:
        """Whether the two parties can be told from the cost of calling them, so that a ratio means something."""
        return self.speedup is not None


def distribution(samples: Iterable[float], percentiles: Iterable[float] = ()) -> Distribution:
    """Describe the samples; `percentiles` are added to the usual ones, in percent."""
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
