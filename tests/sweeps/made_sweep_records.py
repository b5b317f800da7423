"""Records of a sweep, made by hand: for tests that need no device."""

from __future__ import annotations

from torchstone.schema.measurement import SpeedOfLight
from torchstone.schema.sweep import SweepPoint, SweepRecord, SweepSkip, SweepTiming

LIGHT = SpeedOfLight(read_bytes=600_000, written_bytes=400_000, bytes_per_second=1e12, latency_ns=500.0)
"""A call of a megabyte takes a microsecond at least."""


def point(operation: str = "GELU", batch: int = 16, sequence: int = 256, dimension: int = 8) -> SweepPoint:
    return SweepPoint(operation, batch, sequence, dimension, "float32", "fwd")


def record(
    at: SweepPoint | None = None,
    times_ns: dict[str, float] | None = None,
    skips: dict[str, str] | None = None,
    light: SpeedOfLight | None = LIGHT,
) -> SweepRecord:
    timings = tuple(
        SweepTiming(name, tuple(time_ns * (1 + 0.001 * (n % 3)) for n in range(10)), 20, 1_500_000)
        for name, time_ns in (times_ns or {}).items()
    )
    skipped = tuple(SweepSkip(name, reason) for name, reason in (skips or {}).items())
    return SweepRecord(point=at or point(), device="a device", timings=timings, skips=skipped, light=light)
