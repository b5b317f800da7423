"""Remarks after the tables: kernels that were not used, and timings that were disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torchstone.backends import Problem
from torchstone.reports.summary import CaseResult, device_types, mixes_types
from torchstone.reports.text import one_line
from torchstone.schema import Measurement

_MOST_REASONS = 5
"""Lines about kernels that were not used; the rest is counted."""
_MOST_PLACES = 3
"""Kernels that one line names."""
_DISTURBED_SHARE = 0.25
"""Share of disturbed rounds from which a case counts as disturbed: one of seven hardly moves a winsorised mean."""


def remarks(results: Iterable[CaseResult], problems: Iterable[Problem], folder: Path) -> list[str]:
    """One line for each remark; empty if there is none."""
    listed = tuple(results)
    return [*_mixed(listed), *_disturbed(listed), *_not_used(problems, folder)]


def _mixed(results: Sequence[CaseResult]) -> Iterator[str]:
    """That times come from several types of device: then there are no averages."""
    if mixes_types(results):
        types = device_types(item.record for item in results if item.timing is not None)
        told = ", ".join(f"{name} ({count})" for name, count in types.items())
        yield f"timing: cases were timed on devices of several types: {told}; speedups are not averaged"


def _not_used(problems: Iterable[Problem], folder: Path) -> Iterator[str]:
    """``not used: rleu: torch has no such operator; did you mean 'relu'?``, a line for each reason."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.reason, []).append(problem.where)
    lines = [f"not used: {_named(where)}: {reason}" for reason, where in places.items()]
    yield from map(one_line, lines[:_MOST_REASONS])
    if len(lines) > _MOST_REASONS:
        left = sum(len(where) for where in list(places.values())[_MOST_REASONS:])
        yield f"not used: {left} more in {folder / 'OVERALL_SUMMARY.md'}"


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return ", ".join(places[:_MOST_PLACES]) + more


def _disturbed(results: Iterable[CaseResult]) -> Iterator[str]:
    """A line if most timed cases were disturbed."""
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
