"""Combines the record of each judged case with the timing computed from it, in the order that all reports share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec

from torchstone.measuring import Attainment, Speedup, Timing, timing
from torchstone.reports.safe_text import natural
from torchstone.schema import Agrees, Disagrees, ErrorStatistics, Record, Verdict, encode, verdict_name

VERDICT_NAMES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Verdict))
"""In the order in which they are shown."""


class CaseResult(msgspec.Struct, frozen=True):
    """A record and its computed timing."""

    record: Record
    timing: Timing | None
    """None: it was not measured."""

    @property
    def speedup(self) -> Speedup | None:
        return self.timing.speedup if self.timing is not None else None

    @property
    def attainment(self) -> Attainment | None:
        return self.timing.attainment if self.timing is not None else None

    @property
    def errors(self) -> ErrorStatistics:
        verdict = self.record.verdict
        return verdict.errors if isinstance(verdict, Agrees | Disagrees) else ErrorStatistics()


def evaluate(records: Iterable[Record]) -> tuple[CaseResult, ...]:
    """The records with their timings, in the order that all reports share."""
    ordered = sorted(records, key=_place)
    return tuple(CaseResult(record, _timing(record)) for record in ordered)


def _place(record: Record) -> tuple[object, ...]:
    operator, backend = natural(record.case.operator), natural(record.implementation.backend)
    return operator, backend, natural(record.case.label), record.job_key, encode(record)


def _timing(record: Record) -> Timing | None:
    measurement = record.measurement
    if measurement is None or not {"candidate", "reference"} <= {block.party for block in measurement.blocks}:
        return None
    return timing(measurement)


def device_types(records: Iterable[Record]) -> dict[str, int]:
    """How many records each type of device has; records of earlier versions have none."""
    return dict(sorted(Counter(record.device_model for record in records if record.device_model).items()))


def mixes_types(results: Iterable[CaseResult]) -> bool:
    """Whether times were taken on devices of several types."""
    return len({item.record.device_model for item in results if item.timing is not None}) > 1


def counts_of(results: Iterable[CaseResult]) -> dict[str, int]:
    """Cases per verdict, those without any left out."""
    found = Counter(verdict_name(item.record.verdict) for item in results)
    return {name: found[name] for name in VERDICT_NAMES if found[name]}
