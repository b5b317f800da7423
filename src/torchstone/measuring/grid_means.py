"""Geometric means over the sizes of a sweep, with 95 % intervals: shared by its tables and its plots.

The rows of a sweep hold an interval for each time. The intervals of ratios and means are derived from these, taken as
independent, on the logarithm of the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from torchstone.schema import SweepRow

BASELINE = "PyTorch"
"""The implementation that speedups are relative to."""

GridPoint = tuple[int, int, int]
"""Batch size, sequence length and tensor dimension."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Estimate(NamedTuple):
    """A positive value with its 95 % interval."""

    value: float
    low: float
    high: float


def point_of(row: SweepRow) -> GridPoint:
    """The grid point at which the row was timed."""
    return row.batch_size, row.sequence_length, row.tensor_dimension


def time_ms(row: SweepRow) -> Estimate:
    """The time per call. The interval is cut above 0, so that it has a logarithm, and always contains it."""
    low = min(max(row.interval_low_ms, row.time_ms * 1e-3), row.time_ms)
    return Estimate(row.time_ms, low, max(row.interval_high_ms, row.time_ms))


def ratio(over: Estimate, under: Estimate) -> Estimate:
    """`over` divided by `under`: of two times, how many times as fast the second one is."""
    value = over.value / under.value
    below = math.hypot(math.log(over.value / over.low), math.log(under.high / under.value))
    above = math.hypot(math.log(over.high / over.value), math.log(under.value / under.low))
    return Estimate(value, value * math.exp(-below), value * math.exp(above))


def geometric_mean(estimates: Sequence[Estimate]) -> Estimate:
    """The geometric mean of one or more estimates."""
    count = len(estimates)
    centre = math.fsum(math.log(item.value) for item in estimates) / count
    below = math.hypot(*(math.log(item.value / item.low) for item in estimates)) / count
    above = math.hypot(*(math.log(item.high / item.value) for item in estimates)) / count
    return Estimate(math.exp(centre), math.exp(centre - below), math.exp(centre + above))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by key. Keys and items keep their order."""
    found: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return dict(found)


def by_implementation(rows: Iterable[SweepRow]) -> dict[str, dict[GridPoint, SweepRow]]:
    """Implementation -> point -> row. If a point was timed twice, the later row counts."""
    found: dict[str, dict[GridPoint, SweepRow]] = {}
    for row in rows:
        found.setdefault(row.implementation, {})[point_of(row)] = row
    return found


def common_points(tables: Mapping[str, Mapping[GridPoint, SweepRow]]) -> list[GridPoint]:
    """The points at which every implementation was timed, sorted: means over these can be compared."""
    if not tables:
        return []
    first, *others = tables.values()
    return sorted(point for point in first if all(point in other for other in others))


def speedups(rows: Iterable[SweepRow]) -> dict[str, dict[GridPoint, Estimate]]:
    """Implementation -> point -> speedup over the baseline, of the rows of one operation, mode and dtype.

    The baseline itself is left out. Empty without a baseline.
    """
    tables = by_implementation(rows)
    base = tables.pop(BASELINE, {})
    found = {
        name: {point: ratio(time_ms(base[point]), time_ms(row)) for point, row in table.items() if point in base}
        for name, table in tables.items()
    }
    return {name: table for name, table in found.items() if table}
