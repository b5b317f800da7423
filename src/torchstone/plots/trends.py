"""Charts time and bandwidth against batch size, sequence length and dimension, one line per implementation.

Each point is the geometric mean over the other two axes. Every point uses the same combinations of these if possible,
so that a line does not jump where some were skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from torchstone.measuring.grid_means import (
    Estimate,
    GridPoint,
    by_implementation,
    common_points,
    geometric_mean,
    grouped,
    time_ms,
)
from torchstone.plots import style
from torchstone.schema import SweepRow

AXES = ("Batch size", "Sequence length", "Dimension")
_WIDTH, _HEIGHT = 250, 170
_LABEL_WIDTH = 32
"""Width for the numbers beside an axis, the same in every row so that columns are aligned."""
_MOST_LABELS = 8
"""Most values of an axis that are all labelled. With more, labels that would overlap are left out."""


class _Metric(NamedTuple):
    """The quantity on the vertical axis."""

    name: str
    unit: str
    logarithmic: bool
    estimate: Callable[[SweepRow], Estimate]


class _Line(NamedTuple):
    """The means of one operation at each value of one swept dimension."""

    axis: int
    """The swept dimension: index into AXES."""
    rows: list[dict[str, Any]]
    combinations: int
    """Number of combinations of the other two axes in each mean."""


def time_chart(rows: Sequence[SweepRow], device: str | None = None) -> style.TopLevel | None:
    """Chart of the time per call, from rows of one mode and dtype. None: no operation has points to draw."""
    factor, unit = (1000, "µs") if max((row.time_ms for row in rows), default=0.0) < 10 else (1, "ms")
    metric = _Metric("Time per call", unit, True, lambda row: _scaled(time_ms(row), factor))
    return _chart(rows, device, metric, "Time per call against each axis of the grid")


def bandwidth_chart(rows: Sequence[SweepRow], device: str | None = None) -> style.TopLevel | None:
    """Chart of the bandwidth: bytes that the operator must move, divided by the time. None: no bytes are known."""
    metric = _Metric("Bandwidth", "GB/s", False, _bandwidth)
    known = [row for row in rows if row.throughput_gbps]
    return _chart(known, device, metric, "Bandwidth against each axis: bytes that any kernel must move, over the time")


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(*(factor * value for value in estimate))


def _bandwidth(row: SweepRow) -> Estimate:
    time, rate = time_ms(row), row.throughput_gbps or 0.0
    return Estimate(rate, rate * time.value / time.high, rate * time.value / time.low)


def _chart(rows: Sequence[SweepRow], device: str | None, metric: _Metric, title: str) -> style.TopLevel | None:
    names = style.ordered(row.implementation for row in rows)
    lines = {
        operation: found
        for operation, own in grouped(rows, lambda row: row.operation).items()
        if (found := _lines(by_implementation(own), metric))
    }
    if not lines:
        return None
    charts = [_operation_chart(operation, found, names, metric) for operation, found in lines.items()]
    note = "Points are geometric means over the other two axes, bars their 95 % intervals."
    return style.finished(
        alt.vconcat(*charts, spacing=22), title, style.subtitle(rows[0].dtype, rows[0].mode, device), note
    )


def _lines(tables: Mapping[str, Mapping[GridPoint, SweepRow]], metric: _Metric) -> list[_Line]:
    """The means along each swept dimension with several values; along the last one if none has several."""
    common = common_points(tables)
    if not common:
        return []
    several = [axis for axis in range(len(AXES)) if len({point[axis] for point in common}) > 1]
    return [_line(tables, common, axis, metric) for axis in several or [len(AXES) - 1]]


def _line(
    tables: Mapping[str, Mapping[GridPoint, SweepRow]], common: Sequence[GridPoint], axis: int, metric: _Metric
) -> _Line:
    by_value = grouped(common, lambda point: point[axis])
    others = [{_without(point, axis) for point in points} for points in by_value.values()]
    everywhere = set.intersection(*others)
    rows = []
    for name, found in tables.items():
        for value, points in sorted(by_value.items()):
            chosen = [point for point in points if not everywhere or _without(point, axis) in everywhere]
            mean = geometric_mean([metric.estimate(found[point]) for point in chosen])
            rows.append({"implementation": name, "at": value, **mean._asdict()})
    return _Line(axis, rows, len(everywhere))


def _without(point: GridPoint, axis: int) -> tuple[int, ...]:
    return point[:axis] + point[axis + 1 :]


def _operation_chart(operation: str, lines: Sequence[_Line], names: Sequence[str], metric: _Metric) -> alt.HConcatChart:
    """One chart for each swept dimension (such as batch size) of an operation, side by side on one vertical scale."""
    lows = [row["low"] for line in lines for row in line.rows]
    highs = [row["high"] for line in lines for row in line.rows]
    upwards = _upwards(min(lows), max(highs), metric)
    charts = [
        _line_chart(line, names, metric, upwards if not number else _without_title(upwards))
        for number, line in enumerate(lines)
    ]
    return alt.hconcat(*charts, spacing=18).properties(title=style.section_title(operation))


def _upwards(low: float, high: float, metric: _Metric) -> alt.Y:
    title = f"{metric.name} ({metric.unit})"
    if not metric.logarithmic:
        return alt.Y(
            "value:Q",
            title=title,
            scale=alt.Scale(domain=[0, high], nice=True),
            axis=alt.Axis(format=",~f", minExtent=_LABEL_WIDTH),
        )
    span = style.log_range(low, high)
    axis = alt.Axis(values=span.ticks, format=",~g", minExtent=_LABEL_WIDTH)
    return alt.Y("value:Q", title=title, scale=span.scale, axis=axis)


def _without_title(upwards: alt.Y) -> alt.Y:
    """The vertical axis without a title, for all charts of a row but the first."""
    copied = upwards.copy()
    copied["title"] = None
    return copied


def _line_chart(line: _Line, names: Sequence[str], metric: _Metric, upwards: alt.Y) -> alt.LayerChart:
    at = sorted({row["at"] for row in line.rows})
    axis = alt.Axis(values=at, format="d", labelOverlap="greedy" if len(at) > _MOST_LABELS else False)
    across = alt.X(
        "at:Q", title=AXES[line.axis], scale=alt.Scale(type="log", base=2, padding=12, nice=False), axis=axis
    )
    base = alt.Chart(style.values(line.rows), width=_WIDTH, height=_HEIGHT).encode(
        across, upwards, style.implementation_colour(names)
    )
    tip = [
        alt.Tooltip("implementation:N", title="Implementation"),
        alt.Tooltip("at:Q", title=AXES[line.axis]),
        *(
            alt.Tooltip(f"{key}:Q", title=f"{word} ({metric.unit})", format=".4g")
            for key, word in style.TIP_WORDS.items()
        ),
    ]
    return style.layered(
        base.mark_line(strokeWidth=1.8),
        base.mark_rule(strokeWidth=2).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        base.mark_point(filled=True, size=44, opacity=1).encode(style.implementation_shape(names), tooltip=tip),
    )
