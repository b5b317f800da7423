"""Finds the cases of a run that took the judge longest, with the seconds of each stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchstone.reports.case_results import CaseResult
from torchstone.reports.safe_text import natural
from torchstone.schema import Record

STAGES = ("start", "wait", "load", "compile", "check", "measure")
"""Stages with recorded seconds, in their order."""


def seconds_of(record: Record) -> float:
    """Seconds that the judge spent on the case; 0 if it was not judged."""
    return sum(record.stage_seconds.values())


def slowest(results: Iterable[CaseResult], count: int) -> list[Record]:
    """The `count` slowest cases that took any time, slowest first."""
    taken = [item.record for item in results if seconds_of(item.record) > 0]
    taken.sort(key=lambda record: (-seconds_of(record), natural(record.case.operator), record.job_key))
    return taken[:count]


def stages_of(records: Iterable[Record]) -> tuple[str, ...]:
    """The stages that any of the cases went through, known ones first."""
    there = {name: None for record in records for name in sorted(record.stage_seconds)}
    return (*(name for name in STAGES if name in there), *(name for name in there if name not in STAGES))


def duration_entries(results: Iterable[CaseResult], count: int) -> list[dict[str, Any]]:
    """The slowest cases for ``--json``."""
    return [
        {
            "operator": record.case.operator,
            "backend": record.implementation.backend,
            "case": record.case.label,
            "seconds": round(seconds_of(record), 6),
            "stage_seconds": record.stage_seconds,
            "job_key": record.job_key,
        }
        for record in slowest(results, count)
    ]
