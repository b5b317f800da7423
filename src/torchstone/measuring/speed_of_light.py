"""Computes what share of the device's limit (bandwidth, arithmetic or latency) a time reaches, from a record."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema import SpeedOfLight

Bound = Literal["memory", "compute", "latency"]


class Attainment(msgspec.Struct, frozen=True):
    """The share of the device's limit that both parties reach, in percent. Values above 100 are kept."""

    limit_ns: float
    """Least time of a call by the ceilings."""
    bound: Bound
    """What sets the limit: moving the bytes, arithmetic, or the least time of any call."""
    candidate_percent: float
    reference_percent: float
    candidate_bytes_per_second: float
    """The bytes that any kernel must move, divided by the candidate's time."""
    reference_bytes_per_second: float
    candidate_flops_per_second: float | None
    """None: torch counts no arithmetic for this operator."""
    reference_flops_per_second: float | None

    @property
    def over_limit(self) -> bool:
        """Whether the candidate is faster than the limit: the work is counted too high, or the ceilings are too low."""
        return self.candidate_percent > 100


def has_limit(light: SpeedOfLight) -> bool:
    """Whether a limit is known. It is not if arithmetic may set it and its amount or its rate is unknown."""
    return light.flops_counted != "unknown" and (light.flops_counted != "formula" or light.flops_per_second is not None)


def limit_of(light: SpeedOfLight) -> tuple[float, Bound]:
    """The least time of a call in nanoseconds, and what it is spent on."""
    limits_ns: dict[Bound, float] = {
        "memory": light.min_bytes / light.bytes_per_second * 1e9,
        "compute": light.flops / light.flops_per_second * 1e9 if light.flops_per_second else 0.0,
        "latency": light.latency_ns,
    }
    bound = max(limits_ns, key=lambda name: limits_ns[name])
    return limits_ns[bound], bound


def attainment(light: SpeedOfLight, candidate_ns: float, reference_ns: float) -> Attainment:
    """Compute the attainment from times per call, which must be positive."""
    limit_ns, bound = limit_of(light)
    flops = light.flops or None
    return Attainment(
        limit_ns=limit_ns,
        bound=bound,
        candidate_percent=100 * limit_ns / candidate_ns,
        reference_percent=100 * limit_ns / reference_ns,
        candidate_bytes_per_second=light.min_bytes / candidate_ns * 1e9,
        reference_bytes_per_second=light.min_bytes / reference_ns * 1e9,
        candidate_flops_per_second=flops / candidate_ns * 1e9 if flops else None,
        reference_flops_per_second=flops / reference_ns * 1e9 if flops else None,
    )
