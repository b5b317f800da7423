"""A roofline plot of a run as SVG: what every timed case reaches, under the ceilings of its device.

Written without a plotting library: the same records give the same bytes. Colours follow the reader's light or dark
setting. Cases without counted arithmetic stand at the left edge, as far below the memory slope as they are from their
limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from torchstone.measuring import Attainment
from torchstone.reports.summary import CaseResult
from torchstone.reports.text import of_limit, one_line
from torchstone.schema import SpeedOfLight

_WIDTH, _PLOT_HEIGHT = 1240, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 104, 664, 48, 520
_LEGEND_X, _LINE_HEIGHT = 700, 18
_LABEL_LETTERS = 62
_EDGE_FLOPS_PER_BYTE = 1 / 64
"""Where cases without arithmetic stand; all others stand to the right of it."""

_STYLE = """
  svg { background: #ffffff; color: #1b1f24; font: 12px system-ui, sans-serif; }
  text { fill: currentColor; }
  .title { font-size: 16px; font-weight: 600; }
  .grid { stroke: #d7dbe0; stroke-width: 1; }
  .axis { stroke: currentColor; stroke-width: 1; fill: none; }
  .roof { stroke: #0b62c4; stroke-width: 2; fill: none; }
  .roof-name { fill: #0b62c4; }
  .gap { stroke: #767d86; stroke-width: 1; stroke-dasharray: 2 3; }
  .point { fill: #0f7b3f; }
  .over { fill: #b3261e; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171a; color: #e6e9ec; }
    .grid { stroke: #32383f; }
    .roof { stroke: #6cb0ff; }
    .roof-name { fill: #6cb0ff; }
    .gap { stroke: #8d959e; }
    .point { fill: #53d18b; }
    .over { fill: #ff8a80; }
  }
"""


class _Point(NamedTuple):
    """One case in the plot."""

    intensity: float
    """Flop per byte."""
    reached: float
    """Flop per second; at the left edge, what that many bytes per second would be there."""
    allowed: float
    words: str
    is_over: bool


class _Axes(NamedTuple):
    """Decades in both directions, and where they lie on the page."""

    x_first: int
    x_last: int
    y_first: int
    y_last: int

    def x(self, value: float) -> float:
        return _place(math.log10(value), self.x_first, self.x_last, _LEFT, _RIGHT)

    def y(self, value: float) -> float:
        return _place(math.log10(value), self.y_first, self.y_last, _BOTTOM, _TOP)


def roofline_svg(results: Sequence[CaseResult]) -> str | None:
    """The plot; None if no case has both a resolved time and a known limit."""
    found = [
        (item, item.attainment, light) for item in results if item.attainment and (light := _light(item)) is not None
    ]
    if not found:
        return None
    points = [_point(item, reached, light) for item, reached, light in found]
    lights = [light for _, _, light in found]
    bandwidth = max(light.bytes_per_second for light in lights)
    roofs = _compute_roofs(lights)
    axes = _axes(points, bandwidth, roofs)
    height = max(_PLOT_HEIGHT, _TOP + 40 + _LINE_HEIGHT * len(points))
    parts = [
        *_frame(axes),
        *_memory_roof(axes, bandwidth, max(roofs.values(), default=None)),
        *(line for dtype, rate in roofs.items() for line in _compute_roof(axes, dtype, rate, bandwidth)),
        *(line for number, point in enumerate(points, 1) for line in _drawn(axes, number, point)),
        *_legend(points),
    ]
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Roofline of a Torchstone run">'
    return "\n".join((head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""))


def _light(item: CaseResult) -> SpeedOfLight | None:
    return item.record.measurement.speed_of_light if item.record.measurement is not None else None


def _point(item: CaseResult, reached: Attainment, light: SpeedOfLight) -> _Point:
    """Where the case stands. What moves nothing and calculates nothing is drawn as if it moved a byte."""
    work = light.flops or max(light.min_bytes, 1) * _EDGE_FLOPS_PER_BYTE
    intensity = light.flops / max(light.min_bytes, 1) if light.flops else _EDGE_FLOPS_PER_BYTE
    allowed = work / reached.limit_ns * 1e9
    name = item.record.case.operator.removeprefix("aten.").removesuffix(".default")
    share = of_limit(reached.candidate_percent, (reached.bound,), reached.over_limit)
    label = one_line(f"{name} {item.record.case.label}", _LABEL_LETTERS)
    return _Point(
        intensity, allowed * reached.candidate_percent / 100, allowed, f"{label}: {share}", reached.over_limit
    )


def _compute_roofs(lights: Sequence[SpeedOfLight]) -> dict[str, float]:
    """The highest ceiling of each dtype, in a fixed order."""
    roofs: dict[str, float] = {}
    for light in lights:
        if light.flops_per_second is not None and light.dtype is not None:
            roofs[light.dtype] = max(roofs.get(light.dtype, 0.0), light.flops_per_second)
    return dict(sorted(roofs.items()))


def _axes(points: Sequence[_Point], bandwidth: float, roofs: dict[str, float]) -> _Axes:
    """Whole decades around all points and ceilings, the ridge where the roofs meet included."""
    ridges = [rate / bandwidth for rate in roofs.values()]
    across = [_EDGE_FLOPS_PER_BYTE, 1.0, *ridges, *(point.intensity for point in points)]
    above = [*roofs.values(), *(value for point in points for value in (point.reached, point.allowed))]
    x_first, x_last = math.floor(math.log10(min(across))), math.ceil(math.log10(max(across)) + 0.3)
    y_first, y_last = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)) + 0.1)
    return _Axes(x_first, x_last, y_first, max(y_last, y_first + 1))


def _place(value: float, first: float, last: float, begin: float, end: float) -> float:
    return begin + (value - first) / (last - first) * (end - begin)


def _frame(axes: _Axes) -> Iterator[str]:
    """Title, grid and axes."""
    yield _text(_LEFT, 28, "Roofline: what kernels reach, and what the device allows", "title")
    for exponent in range(axes.x_first, axes.x_last + 1):
        x = axes.x(10.0**exponent)
        yield _line("grid", x, _TOP, x, _BOTTOM)
        yield _text(x, _BOTTOM + 16, f"{10.0**exponent:g}", anchor="middle")
    for exponent in range(axes.y_first, axes.y_last + 1):
        y = axes.y(10.0**exponent)
        yield _line("grid", _LEFT, y, _RIGHT, y)
        yield _text(_LEFT - 8, y + 4, _flops(10.0**exponent), anchor="end")
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>'
    yield _text((_LEFT + _RIGHT) / 2, _BOTTOM + 34, "flop per byte (left edge: none counted)", anchor="middle")


def _memory_roof(axes: _Axes, bandwidth: float, highest: float | None) -> Iterator[str]:
    """The slope of memory, up to the highest ceiling of arithmetic or the end of the page."""
    left, right = 10.0**axes.x_first, 10.0**axes.x_last
    begin = max(left, 10.0**axes.y_first / bandwidth)
    end = min(right, (highest if highest is not None else 10.0**axes.y_last) / bandwidth)
    if begin >= end:
        return
    yield _line("roof", axes.x(begin), axes.y(begin * bandwidth), axes.x(end), axes.y(end * bandwidth))
    yield _text(axes.x(begin) + 6, axes.y(begin * bandwidth) - 8, f"{bandwidth / 1e9:,.1f} GB/s", "roof-name")


def _compute_roof(axes: _Axes, dtype: str, rate: float, bandwidth: float) -> Iterator[str]:
    ridge = min(max(rate / bandwidth, 10.0**axes.x_first), 10.0**axes.x_last)
    yield _line("roof", axes.x(ridge), axes.y(rate), _RIGHT, axes.y(rate))
    yield _text(_RIGHT - 4, axes.y(rate) - 6, f"{dtype} {_flops(rate)}", "roof-name", anchor="end")


def _drawn(axes: _Axes, number: int, point: _Point) -> Iterator[str]:
    """The point, the gap to its own limit, and its number."""
    x, y = axes.x(point.intensity), axes.y(point.reached)
    yield _line("gap", x, y, x, axes.y(point.allowed))
    kind = "over" if point.is_over else "point"
    yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(point.words)}</title></circle>'
    aside = 7 + 13 * (number % 3)  # cases of one intensity stand on one line; their numbers need not
    yield _text(x + aside, y + 4, str(number))


def _legend(points: Sequence[_Point]) -> Iterator[str]:
    for number, point in enumerate(points, 1):
        kind = "over" if point.is_over else ""
        yield _text(_LEGEND_X, _TOP + 12 + _LINE_HEIGHT * (number - 1), f"{number}  {point.words}", kind)


def _flops(rate: float) -> str:
    """``12 GFLOP/s``; only as many digits as say something."""
    for unit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= unit * 0.999:
            return f"{rate / unit:.3g} {prefix}FLOP/s"
    return f"{rate:.3g} FLOP/s"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
