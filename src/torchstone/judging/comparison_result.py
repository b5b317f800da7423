"""The result of a comparison: agreement, or the first thing that is wrong, in words and in fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchstone.schema import ErrorStatistics, WrongResult

Reason = Literal["values", "precision", "nonfinite", "shape", "dtype", "structure", "mutation"]

UNKNOWN = ErrorStatistics()


@dataclass(frozen=True)
class Agreement:
    """Every call gave the right result and changed no other memory."""

    errors: ErrorStatistics
    """Of the calls that were compared in full; all None if screening accepted every one."""
    calls: int = 1


@dataclass(frozen=True)
class Mismatch:
    """A call gave a wrong result, or changed memory that it must not change."""

    reason: Reason
    message: str
    errors: ErrorStatistics = UNKNOWN
    call: int = 0
    """Which of the compared calls: the first one that is wrong."""
    wrong: WrongResult | None = None
    """The same in fields."""


def worst_of(one: ErrorStatistics, other: ErrorStatistics) -> ErrorStatistics:
    """The larger of each number of results that are right; None counts for nothing."""
    names = (
        "max_abs_error",
        "max_rel_error",
        "worst_over_bound",
        "native_over_bound",
        "rms_over_bound",
        "bias_over_bound",
    )
    known = {name: [getattr(each, name) for each in (one, other) if getattr(each, name) is not None] for name in names}
    return ErrorStatistics(**{name: max(values, key=float, default=None) for name, values in known.items()})
