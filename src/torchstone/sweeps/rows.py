"""Makes the rows of a sweep's output from its records: what was timed, and what was not, with the reason. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchstone.measuring.speed_of_light import has_limit, limit_of
from torchstone.runs.journal import RecordKind
from torchstone.schema.measurement import SpeedOfLight
from torchstone.schema.sweep import SkippedRow, SweepPoint, SweepRecord, SweepRow
from torchstone.sweeps.estimate import estimate
from torchstone.sweeps.request import point_key

WRONG, CRASHED, TIMED_OUT, RAISED = "wrong", "crashed", "timed out", "raised"
MISSING, UNSUPPORTED, TOO_LARGE, OUT_OF_MEMORY = "missing", "unsupported", "does not fit", "ran out of memory"
NO_INPUTS = "no inputs"
FAILURES = (WRONG, CRASHED, TIMED_OUT, RAISED)
"""Beginnings of reasons that are the implementation's fault, not the machine's or the request's."""

SWEEP_RECORDS = RecordKind(
    name="sweep", type=SweepRecord, key=lambda record: point_key(record.point), tried_again=lambda record: False
)
"""The journal of a sweep: one record per point."""


def timed_rows(records: Iterable[SweepRecord]) -> Iterator[SweepRow]:
    """A row for every implementation that was timed."""
    for record in records:
        for timing in record.timings:
            found = estimate(timing.samples_ns)
            yield SweepRow(
                **_point_fields(record.point),
                implementation=timing.implementation,
                time_ms=found.time_ns / 1e6,
                interval_low_ms=found.low_ns / 1e6,
                interval_high_ms=found.high_ns / 1e6,
                memory_mb=timing.memory_bytes / 1e6,
                inference_speed=1e9 / found.time_ns,
                gpu_efficiency=efficiency(record.light, found.time_ns),
                throughput_gbps=None if record.light is None else record.light.min_bytes / found.time_ns,
            )


def skipped_rows(records: Iterable[SweepRecord]) -> Iterator[SkippedRow]:
    """A row for every implementation that was not timed."""
    for record in records:
        for skip in record.skips:
            yield SkippedRow(**_point_fields(record.point), implementation=skip.implementation, reason=skip.reason)


def efficiency(light: SpeedOfLight | None, time_ns: float) -> float | None:
    """Percent of the device's limit, which may exceed 100. None: there is no limit."""
    if light is None or not has_limit(light):
        return None
    return 100 * limit_of(light)[0] / time_ns


def is_failure(reason: str) -> bool:
    """Whether the implementation is at fault: wrong, crashed, timed out or raised."""
    return reason.startswith(FAILURES)


def _point_fields(point: SweepPoint) -> dict[str, Any]:
    return msgspec.structs.asdict(point)
