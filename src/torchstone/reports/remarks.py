"""Formats the remarks below a run's tables: kernels missing or unused, times unresolved, disturbed or mixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torchstone.backends import Problem
from torchstone.reports.case_results import CaseResult, device_types, mixes_types
from torchstone.reports.safe_text import one_line
from torchstone.schema import Measurement, Missing

_MOST_LINES = 5
"""Most lines about kernels that were not used, and most lines about unresolved times. The rest is only counted."""
_MOST_NAMES = 3
"""Most kernels that one line names."""
_MOST_MISSING = 3
"""If more reasons for missing kernels exist, none is listed: an author of few kernels knows that all others are
missing."""
_DISTURBED_SHARE = 0.25
"""Least share of disturbed rounds of a disturbed case. One of seven rounds hardly changes a winsorised mean."""


def remarks(results: Iterable[CaseResult], problems: Iterable[Problem], folder: Path) -> list[str]:
    """One line for each remark; empty if there is none."""
    listed = tuple(results)
    return [*_mixed(listed), *_disturbed(listed), *_unresolved(listed), *_missing(listed), *_not_used(problems, folder)]


def _mixed(results: Sequence[CaseResult]) -> Iterator[str]:
    """A line if times come from several types of device: speedups are then not averaged."""
    if mixes_types(results):
        types = device_types(item.record for item in results if item.timing is not None)
        type_counts = ", ".join(f"{name} ({count})" for name, count in types.items())
        yield f"timing: cases were timed on devices of several types: {type_counts}; speedups are not averaged"


def _unresolved(results: Iterable[CaseResult]) -> Iterator[str]:
    """A line for each reason why timed cases have no speedup."""
    places: dict[str, dict[str, None]] = {}
    for item in results:
        if item.timing is not None and item.speedup is None and item.timing.unresolved:
            places.setdefault(item.timing.unresolved, {})[item.record.case.operator] = None
    for reason, operators in list(places.items())[:_MOST_LINES]:
        yield one_line(f"unresolved: {_listed(tuple(operators))}: {reason}")
    if len(places) > _MOST_LINES:
        yield f"unresolved: {len(places) - _MOST_LINES} more; 'torchstone show --case OPERATOR' shows each"


def _missing(results: Iterable[CaseResult]) -> Iterator[str]:
    """A line for each reason why a kernel is missing, if these are few: then the user probably expected the kernels."""
    found: dict[str, None] = {}
    for item in results:
        if isinstance(item.record.verdict, Missing):
            found[item.record.verdict.reason] = None
    if len(found) <= _MOST_MISSING:
        yield from (one_line(f"missing: {reason}") for reason in found)


def _not_used(problems: Iterable[Problem], folder: Path) -> Iterator[str]:
    """``not used: rleu: torch has no such operator; did you mean 'relu'?``, a line for each reason."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.reason, []).append(problem.where)
    lines = [f"not used: {_listed(where)}: {reason}" for reason, where in places.items()]
    yield from map(one_line, lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        left = sum(len(where) for where in list(places.values())[_MOST_LINES:])
        yield f"not used: {left} more in {folder / 'OVERALL_SUMMARY.md'}"


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_NAMES} more" if len(places) > _MOST_NAMES else ""
    return ", ".join(places[:_MOST_NAMES]) + more


def _disturbed(results: Iterable[CaseResult]) -> Iterator[str]:
    """A line if more than half of the timed cases were disturbed."""
    measured = [item.record.measurement for item in results if item.timing is not None]
    timed = [item for item in measured if item is not None]
    disturbed = [item for item in timed if _is_disturbed(item)]
    if 2 * len(disturbed) <= len(timed):
        return
    reasons = Counter(reason for item in disturbed for one in item.disturbances for reason in one.reasons)
    why = ", ".join(name for name, _ in reasons.most_common(2))
    yield f"timing: {len(disturbed)} of {len(timed)} timed cases were disturbed ({why}); speedups may be too low"


def _is_disturbed(measured: Measurement) -> bool:
    return len(measured.disturbances) >= _DISTURBED_SHARE * len({block.round for block in measured.blocks})
