"""Lists the cases that did not agree: for tables grouped by operator and reason, for JSON one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from torchstone.reports.case_results import CaseResult
from torchstone.reports.safe_text import counted
from torchstone.schema import Record, TimedOut, Verdict, explain, verdict_name

_NOT_LISTED = ("agrees", "missing")
_MOST_CASES_NAMED = 3
"""Most cases that a group lists. The number of all is always given."""


class FailureGroup(msgspec.Struct, frozen=True):
    """Cases of one operator and backend that failed for the same reason."""

    operator: str
    backend: str
    verdict: str
    reason: str
    """One line: the reason of the first case."""
    records: tuple[Record, ...]

    @property
    def cases(self) -> str:
        """The label of a single case, or how many there are and the first of them."""
        labels = [record.case.label for record in self.records]
        if len(labels) == 1:
            return labels[0]
        rest = len(labels) - _MOST_CASES_NAMED
        shown = [*labels[:_MOST_CASES_NAMED], *([f"{rest} more"] if rest > 0 else [])]
        return f"{counted(len(labels), 'case')}: {'; '.join(shown)}"


def failed(results: Iterable[CaseResult]) -> list[CaseResult]:
    """The results that tables of failures list: all but agreeing cases and cases without a kernel."""
    return [item for item in results if verdict_name(item.record.verdict) not in _NOT_LISTED]


def grouped(results: Iterable[CaseResult]) -> list[FailureGroup]:
    """Groups of failures with the same operator, backend, verdict and reason, in the order of their first cases."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for item in failed(results):
        record = item.record
        key = record.case.operator, record.implementation.backend, verdict_name(record.verdict), _reason(record.verdict)
        found.setdefault(key, []).append(record)
    return [_group(records) for records in found.values()]


def _reason(verdict: Verdict) -> str:
    """The text by which failures are grouped: the explanation without the seconds after which a stage was stopped."""
    same = msgspec.structs.replace(verdict, elapsed_seconds=0.0) if isinstance(verdict, TimedOut) else verdict
    return explain(same)


def _group(records: Sequence[Record]) -> FailureGroup:
    first = records[0]
    name = verdict_name(first.verdict)
    reason = explain(first.verdict)
    return FailureGroup(first.case.operator, first.implementation.backend, name, reason, tuple(records))


def failure_entries(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """Each failed case with its reason, for ``--json``."""
    return [_entry(item.record) for item in failed(results)]


def _entry(record: Record) -> dict[str, Any]:
    verdict = record.verdict
    return {
        "operator": record.case.operator,
        "backend": record.implementation.backend,
        "case": record.case.label,
        "verdict": verdict_name(verdict),
        "stage": getattr(verdict, "stage", None),
        "reason": explain(verdict),
        "job_key": record.job_key,
    }
