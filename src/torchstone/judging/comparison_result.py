"""The result of a comparison: agreement, or the first mismatch, as a message and as data."""

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
    """Errors of the calls that were compared in full; all None if screening accepted every call."""
    calls: int = 1
    """How many calls were compared."""


@dataclass(frozen=True)
class Mismatch:
    """A call gave a wrong result, or changed memory that it must not change."""

    reason: Reason
    message: str
    errors: ErrorStatistics = UNKNOWN
    call: int = 0
    """Index of the call among those compared: the first wrong one."""
    wrong: WrongResult | None = None
    """The mismatch as data, for records."""


def worst_of(one: ErrorStatistics, other: ErrorStatistics) -> ErrorStatistics:
    """The larger of each pair of statistics; None if neither is known."""
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
