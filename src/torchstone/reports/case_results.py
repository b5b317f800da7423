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
"""Names of all verdicts, in the order in which reports show them."""


class CaseResult(msgspec.Struct, frozen=True):
    """A record and the timing computed from it."""

    record: Record
    timing: Timing | None
    """None: the case was not measured."""

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
    ordered = sorted(records, key=_sort_key)
    return tuple(CaseResult(record, _timing(record)) for record in ordered)


def _sort_key(record: Record) -> tuple[object, ...]:
    operator, backend = natural(record.case.operator), natural(record.implementation.backend)
    return operator, backend, natural(record.case.label), record.job_key, encode(record)


def _timing(record: Record) -> Timing | None:
    measurement = record.measurement
    if measurement is None or not {"candidate", "reference"} <= {block.party for block in measurement.blocks}:
        return None
    return timing(measurement)


def device_types(records: Iterable[Record]) -> dict[str, int]:
    """Number of records by type of device. Records of earlier versions have no type and are not counted."""
    return dict(sorted(Counter(record.device_model for record in records if record.device_model).items()))


def mixes_types(results: Iterable[CaseResult]) -> bool:
    """Whether the timed cases were measured on several types of device."""
    return len({item.record.device_model for item in results if item.timing is not None}) > 1


def counts_of(results: Iterable[CaseResult]) -> dict[str, int]:
    """Cases per verdict; verdicts without a case are left out."""
    found = Counter(verdict_name(item.record.verdict) for item in results)
    return {name: found[name] for name in VERDICT_NAMES if found[name]}
