"""Draws roofline charts: the rates that kernels reach, under the measured limits of their device.

Two charts share the arithmetic: numbered cases with a list beside them for a run, one panel per operation for a sweep.
Work without counted arithmetic has no intensity. It is drawn at the left edge, as far below the slope of memory as it
is from its limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from torchstone.measuring import limit_of
from torchstone.plots import style
from torchstone.schema import SpeedOfLight

EDGE_FLOPS_PER_BYTE = 1 / 64
"""Intensity (FLOP per byte) at which work without counted arithmetic is drawn, at the left edge."""
_OVER = "#b3261e"
_POINT = "#0f7b3f"
_ACROSS = "FLOP per byte (left edge: none counted)"
_UPWARDS = "FLOP/s"
_WIDTH, _HEIGHT = 560, 472
_LINE_HEIGHT = 18
_LETTER_WIDTH = 6.8
"""Width of a wide letter in the list beside the plot, in pixels."""
_NUMBER_COLUMNS = 4
_SHIFT_FACTOR = 1.2
"""Factor by which points of different implementations are shifted: about their width on the page."""
_AXIS_MARGIN_FACTOR = 4.0
"""Factor by which the axes extend beyond points and ceilings, for the names of the ceilings."""
_NAME_AT = 0.6
"""Position of its name on the slope of memory, as a share of its length."""
_NAME_SHARE = 0.3
"""Share of the plot's width that the name of the bandwidth needs."""


class RooflinePoint(NamedTuple):
    """One measured time in the chart."""

    intensity: float
    """FLOP per byte."""
    reached: float
    """FLOP per second. At the left edge: bytes per second times the edge's intensity."""
    allowed: float
    """The same for the limit."""
    words: str
    is_over: bool
    """Whether the time is below its limit."""


class Ceilings(NamedTuple):
    """The device's measured limits."""

    bytes_per_second: float
    flops_per_second: dict[str, float]
    """dtype -> rate, in a fixed order."""


def roofline_point(light: SpeedOfLight, time_ns: float, words: str) -> RooflinePoint:
    """The point of a time. A call without bytes and FLOP is drawn as if it moved one byte."""
    work = light.flops or max(light.min_bytes, 1) * EDGE_FLOPS_PER_BYTE
    intensity = light.flops / max(light.min_bytes, 1) if light.flops else EDGE_FLOPS_PER_BYTE
    limit_ns, _ = limit_of(light)
    return RooflinePoint(intensity, work / time_ns * 1e9, work / limit_ns * 1e9, words, time_ns < limit_ns)


def ceilings_of(lights: Sequence[SpeedOfLight]) -> Ceilings:
    """The highest ceiling of memory, and of arithmetic in each dtype."""
    roofs: dict[str, float] = {}
    for light in lights:
        if light.flops_per_second is not None and light.dtype is not None:
            roofs[light.dtype] = max(roofs.get(light.dtype, 0.0), light.flops_per_second)
    return Ceilings(max(light.bytes_per_second for light in lights), dict(sorted(roofs.items())))


def case_roofline(points: Sequence[RooflinePoint], ceilings: Ceilings) -> style.TopLevel:
    """Chart of numbered points with the gap to their limits, beside a list of the numbers."""
    axes = axes_around(points, ceilings)
    columns = _number_columns(points, axes)
    numbered = [
        {"number": number, "column": column, **point._asdict()}
        for number, (column, point) in enumerate(zip(columns, points, strict=True), 1)
    ]
    plot = style.layered(*_roof_layers(axes, ceilings), *_case_layers(numbered, axes)).properties(
        width=_WIDTH, height=_HEIGHT
    )
    return style.finished(
        alt.hconcat(plot, _list(numbered), spacing=20),
        "Roofline: what kernels reach, and what the device allows",
        "Dotted: from a case to its own limit. Red: beyond its limit.",
    )


def sweep_roofline(
    panels: Mapping[str, Sequence[tuple[str, RooflinePoint]]], ceilings: Ceilings, *lines: str
) -> style.TopLevel:
    """Chart with one panel per operation. `panels`: operation -> (implementation, point) of each measurement."""
    everything = [point for panel in panels.values() for _, point in panel]
    names = style.ordered(name for panel in panels.values() for name, _ in panel)
    axes = axes_around(everything, ceilings)
    charts = []
    for operation, panel in panels.items():
        rows = [
            {
                "implementation": name,
                **point._asdict(),
                "intensity": style.spread(point.intensity, name, names, _SHIFT_FACTOR),
            }
            for name, point in panel
        ]
        layers = (*_roof_layers(axes, ceilings), _sweep_points(rows, names, axes))
        charts.append(style.layered(*layers).properties(width=270, height=230, title=style.section_title(operation)))
    note = (
        "Implementations of one operation share their intensity; they are drawn side by side, the first at its place."
    )
    return style.finished(
        alt.concat(*charts, columns=3, spacing=22),
        "Roofline: what implementations reach, and what the device allows",
        *lines,
        note,
    )


class Axes(NamedTuple):
    """The ranges of both axes."""

    wide: style.LogRange
    high: style.LogRange

    def across(self, field: str) -> alt.X:
        axis = alt.Axis(values=self.wide.ticks, format="~g")
        return alt.X(f"{field}:Q", title=_ACROSS, scale=self.wide.scale, axis=axis)

    def upwards(self, field: str) -> alt.Y:
        axis = alt.Axis(values=self.high.ticks, format="~s")
        return alt.Y(f"{field}:Q", title=_UPWARDS, scale=self.high.scale, axis=axis)


def axes_around(points: Sequence[RooflinePoint], ceilings: Ceilings) -> Axes:
    """Axes around all points and ceilings, and the ridges where the roofs meet."""
    rates = ceilings.flops_per_second.values()
    across = [EDGE_FLOPS_PER_BYTE, 1.0, *(rate / ceilings.bytes_per_second for rate in rates)]
    across += [point.intensity for point in points]
    upwards = [*rates, *(value for point in points for value in (point.reached, point.allowed))]
    wide = style.log_range(min(across), max(across), room=_AXIS_MARGIN_FACTOR, most=7)
    return Axes(wide, style.log_range(min(upwards), max(upwards), room=_AXIS_MARGIN_FACTOR, most=9))


def roof_lines(axes: Axes, ceilings: Ceilings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of the slope of memory and of the level ceilings, and the positions of their names."""
    lines, names = [], []
    bandwidth, rates = ceilings.bytes_per_second, ceilings.flops_per_second
    (left, right), (bottom, top) = axes.wide.domain, axes.high.domain
    begin = max(left, bottom / bandwidth)
    end = min(right, max(rates.values(), default=top) / bandwidth)
    if begin < end:
        middle = begin * (end / begin) ** _NAME_AT
        lines.append({"x": begin, "y": begin * bandwidth, "x2": end, "y2": end * bandwidth})
        text = f"{bandwidth / 1e9:,.1f} GB/s"
        # Left of the line where there is room for it, else below its end.
        if math.log(middle / left) > _NAME_SHARE * math.log(right / left):
            names.append({"x": middle, "y": middle * bandwidth, "text": text, "end": 0})
        else:
            names.append({"x": end, "y": min(top, end * bandwidth), "text": text, "end": 2})
    for dtype, rate in rates.items():
        ridge = min(max(rate / bandwidth, left), right)
        lines.append({"x": ridge, "y": rate, "x2": right, "y2": rate})
        names.append({"x": right, "y": rate, "text": f"{dtype} {flops(rate)}", "end": 1})
    return lines, names


def _roof_layers(axes: Axes, ceilings: Ceilings) -> list[alt.Chart]:
    lines, names = roof_lines(axes, ceilings)
    drawn = alt.Chart(style.values(lines)).mark_rule(color=style.ROOF, strokeWidth=2)
    roofs = drawn.encode(axes.across("x"), axes.upwards("y"), alt.X2("x2:Q"), alt.Y2("y2:Q"))
    label = alt.Chart(style.values(names)).encode(axes.across("x"), axes.upwards("y"), alt.Text("text:N"))
    left = label.transform_filter("datum.end == 0").mark_text(color=style.ROOF, align="right", dx=-5, dy=-5)
    below = label.transform_filter("datum.end == 2").mark_text(color=style.ROOF, align="left", dx=4, dy=12)
    right = label.transform_filter("datum.end == 1").mark_text(color=style.ROOF, align="right", dx=-4, dy=-8)
    return [roofs, left, below, right]


def _case_layers(numbered: Sequence[dict[str, Any]], axes: Axes) -> list[alt.Chart]:
    base = alt.Chart(style.values(numbered)).encode(axes.across("intensity"), axes.upwards("reached"))
    gap = base.mark_rule(color="#767d86", strokeDash=[2, 3]).encode(alt.Y2("allowed:Q"))
    colour = alt.condition("datum.is_over", alt.value(_OVER), alt.value(_POINT))
    tip = [alt.Tooltip("number:Q", title="case"), alt.Tooltip("words:N", title=" ")]
    points = base.mark_circle(size=55, opacity=1).encode(color=colour, tooltip=tip)
    numbers = [
        base.transform_filter(f"datum.column == {column}")
        .mark_text(align="left", dx=7 + 15 * column, fontSize=11, color=style.INK)
        .encode(alt.Text("number:Q"))
        for column in range(_NUMBER_COLUMNS)
    ]
    return [gap, points, *numbers]


def _number_columns(points: Sequence[RooflinePoint], axes: Axes) -> list[int]:
    """Column of each number right of its point, chosen so that numbers do not overlap."""
    where = [
        (_pixels(axes.wide, point.intensity, _WIDTH), _pixels(axes.high, point.reached, _HEIGHT)) for point in points
    ]
    columns: list[int] = []
    for number, (x, y) in enumerate(where):
        near = {
            columns[other] for other, (x2, y2) in enumerate(where[:number]) if abs(x - x2) < 40 and abs(y - y2) < 12
        }
        columns.append(min(set(range(_NUMBER_COLUMNS)) - near, default=number % _NUMBER_COLUMNS))
    return columns


def _pixels(span: style.LogRange, value: float, size: int) -> float:
    first, last = span.domain
    return size * math.log(value / first) / math.log(last / first)


def _list(numbered: Sequence[dict[str, Any]]) -> alt.LayerChart:
    down = alt.Y("number:O", axis=None)
    base = alt.Chart(style.values(numbered)).encode(down)
    colour = alt.condition("datum.is_over", alt.value(_OVER), alt.value(style.INK))
    layers = (
        base.mark_text(align="right", fontSize=12).encode(alt.Text("number:O"), x=alt.value(18), color=colour),
        base.mark_text(align="left", fontSize=12, limit=520).encode(alt.Text("words:N"), x=alt.value(28), color=colour),
    )
    width = 34 + round(_LETTER_WIDTH * max(len(row["words"]) for row in numbered))
    return style.layered(*layers).properties(
        width=width, height=alt.Step(_LINE_HEIGHT), view=alt.ViewConfig(stroke=None)
    )


def _sweep_points(rows: Sequence[dict[str, Any]], names: Sequence[str], axes: Axes) -> alt.Chart:
    tip = [alt.Tooltip("words:N", title=" "), alt.Tooltip("reached:Q", title=_UPWARDS, format=".3s")]
    return style.scatter(rows, names, axes.across("intensity"), axes.upwards("reached"), tip)


def flops(rate: float) -> str:
    """Format a rate with three significant digits: ``12 GFLOP/s``."""
    for unit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= unit * 0.999:
            return f"{rate / unit:.3g} {prefix}FLOP/s"
    return f"{rate:.3g} FLOP/s"
