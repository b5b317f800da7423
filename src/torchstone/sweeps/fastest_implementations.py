"""Finds the fastest implementation at each size of a sweep, and where along an axis it changes, as sentences of advice.

A point is a combination of sizes. An implementation counts as the fastest at a point only if its 95 % interval lies
below those of all others. Statements about an axis are made where they hold at three quarters of the other coordinates,
and say at how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from torchstone.measuring.grid_means import (
    BASELINE,
    Estimate,
    GridPoint,
    by_implementation,
    geometric_mean,
    grouped,
    point_of,
    speedups,
    time_ms,
)
from torchstone.reports.safe_text import counted, one_line
from torchstone.schema import SkippedRow, SweepRow

AXES = ("batch", "seq", "dim")
"""Short names of the three coordinates of a point, in their order."""

_LEAST_HOLDING_SHARE = 0.75
"""Least share of combinations of the other coordinates at which a statement about an axis must hold."""
_MAX_RANGES = 3
"""Most ranges of an axis in one statement. More would change back and forth, which a table shows better."""
_REASON_CHARACTERS = 160


class Fastest(msgspec.Struct, frozen=True):
    """The fastest implementations of one operation, at the points at which several were timed."""

    at: dict[GridPoint, str | None]
    """Point -> fastest implementation. None: its interval overlaps that of another."""
    wins: dict[str, int]
    """Implementation -> number of points, most first."""
    no_clear_winner: int


class Range(msgspec.Struct, frozen=True):
    """Neighbouring values of an axis with the same fastest implementation."""

    first: int
    implementation: str | None
    """None: no clear winner."""


class AxisChange(msgspec.Struct, frozen=True):
    """How the fastest implementation changes along one axis."""

    axis: str
    ranges: tuple[Range, ...]
    holds: int
    """Combinations of the other coordinates for which the ranges hold at every value of the axis."""
    combinations: int


def fastest(rows: Iterable[SweepRow]) -> Fastest:
    """The fastest implementations for one operation, mode and dtype. Points with one implementation are left out."""
    tables = by_implementation(rows)
    at_point = grouped((row for table in tables.values() for row in table.values()), point_of)
    at = {point: _winner(found) for point, found in sorted(at_point.items()) if len(found) > 1}
    wins = Counter(name for name in at.values() if name is not None)
    return Fastest(at, dict(wins.most_common()), sum(name is None for name in at.values()))


def _winner(rows: Sequence[SweepRow]) -> str | None:
    first, *others = sorted(rows, key=lambda row: row.time_ms)
    return first.implementation if time_ms(first).high < min(time_ms(row).low for row in others) else None


def changes(at: Mapping[GridPoint, str | None]) -> list[AxisChange]:
    """The axes along which the fastest implementation changes in a way that can be said in one sentence."""
    found = (_change(at, number) for number in range(len(AXES)))
    return [change for change in found if change is not None]


def _change(at: Mapping[GridPoint, str | None], axis: int) -> AxisChange | None:
    by_value = grouped(sorted(at), lambda point: point[axis])
    usual = {value: _most_common(at[point] for point in points) for value, points in sorted(by_value.items())}
    ranges = tuple(Range(next(values), name) for name, values in _runs(usual))
    if not 1 < len(ranges) <= _MAX_RANGES:
        return None
    lines = grouped(sorted(at), lambda point: point[:axis] + point[axis + 1 :]).values()
    whole = [line for line in lines if len(line) == len(usual)]
    holds = sum(_line_holds([at[point] for point in line], list(usual.values())) for line in whole)
    if not holds or holds < _LEAST_HOLDING_SHARE * len(lines):
        return None
    return AxisChange(AXES[axis], ranges, holds, len(lines))


def _most_common(names: Iterable[str | None]) -> str | None:
    return Counter(names).most_common(1)[0][0]


def _runs(usual: Mapping[int, str | None]) -> Iterator[tuple[str | None, Iterator[int]]]:
    for name, items in groupby(usual.items(), key=lambda item: item[1]):
        yield name, (value for value, _ in items)


def _line_holds(names: Sequence[str | None], usual: Sequence[str | None]) -> bool:
    """Whether no point of the line contradicts the usual names, and each name is the clear winner at least once."""
    fits = all(
        name == expected or (name is None and expected is not None) for name, expected in zip(names, usual, strict=True)
    )
    return fits and {name for name in usual if name} <= set(names)


def advice_lines(rows: Sequence[SweepRow], skipped: Sequence[SkippedRow] = ()) -> list[str]:
    """Advice on which implementation to use where, for one operation, mode and dtype; one sentence per line."""
    found = fastest(rows)
    lines = []
    if found.at:
        lines.append(_fastest_sentence(found))
        lines += [_change_sentence(change) for change in changes(found.at)]
    lines += _speedup_lines(speedups(rows))
    lines += skipped_lines(skipped)
    return lines


def _fastest_sentence(found: Fastest) -> str:
    points = len(found.at)
    if len(found.wins) == 1 and not found.no_clear_winner:
        (name,) = found.wins
        return f"Fastest: {name} at {'the only point' if points == 1 else f'all {points} points'}."
    if not found.wins:
        return f"Fastest: no clear winner at any of {counted(points, 'point')} (intervals overlap)."
    parts = [f"{name} at {count}" for name, count in found.wins.items()]
    unclear = f"; no clear winner at {found.no_clear_winner} (intervals overlap)" if found.no_clear_winner else ""
    return f"Fastest of {counted(points, 'point')}: {', '.join(parts)}{unclear}."


def _change_sentence(change: AxisChange) -> str:
    first, *later = change.ranges
    parts = [f"{first.implementation or 'no clear winner'} below {change.axis} {later[0].first}"]
    parts += [f"{one.implementation or 'no clear winner'} from {change.axis} {one.first}" for one in later]
    others = " and ".join(axis for axis in AXES if axis != change.axis)
    if change.combinations == 1:
        where = ""
    elif change.holds == change.combinations:
        where = f" (for every {others})"
    else:
        where = f" (in {change.holds} of {change.combinations} combinations of {others})"
    return f"Along {change.axis}: {', '.join(parts)}{where}."


def _speedup_lines(found: Mapping[str, Mapping[GridPoint, Estimate]]) -> list[str]:
    return [
        f"{name} against {BASELINE}: {mean.value:.3f}x, 95 % interval {mean.low:.3f} to {mean.high:.3f} "
        f"(geometric mean of {counted(len(table), 'point')})."
        for name, table in found.items()
        for mean in [geometric_mean(list(table.values()))]
    ]


def skipped_lines(skipped: Iterable[SkippedRow]) -> list[str]:
    """Lines on skipped rows, counted by implementation and kind of reason (the words before its first colon)."""
    kinds = grouped(skipped, lambda row: (row.implementation, row.reason.partition(":")[0]))
    return [_skipped_sentence(name, [row.reason for row in rows]) for (name, _), rows in kinds.items()]


def _skipped_sentence(implementation: str, reasons: Sequence[str]) -> str:
    first = (
        f"Not timed: {implementation} at {counted(len(reasons), 'point')}: {one_line(reasons[0], _REASON_CHARACTERS)}"
    )
    return first if len(set(reasons)) == 1 else f"{first} (at the first of them)"
