"""What all charts share: colours and marks of implementations, fonts, titles, and the ticks of logarithmic axes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import altair as alt

TopLevel = alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart
"""Return type of all functions of this package that make a chart."""

_KNOWN = {
    "PyTorch": ("#5f5f5f", "circle"),
    "CUDA": ("#009e73", "square"),
    "Triton": ("#0072b2", "triangle-up"),
    "Compile": ("#d55e00", "diamond"),
    "Liger": ("#cc79a7", "cross"),
}
"""Implementation -> colour and mark. The palette of Okabe and Ito is distinguishable with any colour vision."""
_OTHERS = (("#56b4e9", "triangle-down"), ("#b58900", "triangle-right"), ("#8c510a", "triangle-left"))
"""Colours and marks of a user's own implementations, by sorted name. From the fourth on they repeat."""

INK, FAINT, ROOF = "#1b1f24", "#d7dbe0", "#8a1c7c"
"""Colours of text, of the grid, and of measured limits of the device."""
MODES = {"fwd": "forward", "bwd": "backward", "fwd+bwd": "forward and backward"}


def ordered(implementations: Iterable[str]) -> list[str]:
    """Known implementations in a fixed order, then the user's own by name."""
    found = set(implementations)
    return [name for name in _KNOWN if name in found] + sorted(found - _KNOWN.keys())


def colour_and_mark(implementations: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Implementation -> its colour and the shape of its points, the same in every chart of a sweep."""
    names = ordered(implementations)
    own = [name for name in names if name not in _KNOWN]
    return {name: _KNOWN.get(name) or _OTHERS[own.index(name) % len(_OTHERS)] for name in names}


def implementation_colour(implementations: Iterable[str], *, legend: bool = True) -> alt.Color:
    """Encoding of the field `implementation` as colour."""
    chosen = colour_and_mark(implementations)
    scale = alt.Scale(domain=list(chosen), range=[colour for colour, _ in chosen.values()])
    shown = alt.Legend(title=None, orient="top", symbolSize=90) if legend else None
    return alt.Color("implementation:N", scale=scale, legend=shown)


def implementation_shape(implementations: Iterable[str], *, legend: bool = True) -> alt.Shape:
    """Encoding of the field `implementation` as shape."""
    chosen = colour_and_mark(implementations)
    scale = alt.Scale(domain=list(chosen), range=[mark for _, mark in chosen.values()])
    shown = alt.Legend(title=None, orient="top", symbolSize=90) if legend else None
    return alt.Shape("implementation:N", scale=scale, legend=shown)


def subtitle(dtype: str, mode: str, device: str | None) -> str:
    """``NVIDIA H200 · float32 · forward``, without the device if it is unknown."""
    return " · ".join(part for part in (device, dtype, MODES.get(mode, mode)) if part)


_CONFIG = {
    "font": "Helvetica, Arial, sans-serif",
    "title": {
        "fontSize": 17,
        "subtitleFontSize": 12,
        "subtitlePadding": 5,
        "offset": 14,
        "color": INK,
        "subtitleColor": "#4b5158",
    },
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": FAINT,
    },
    "header": {"labelFontSize": 13, "labelFontWeight": "bold", "labelColor": INK, "title": None},
    "legend": {"labelFontSize": 12, "labelLimit": 400, "titleFontSize": 12, "titleFontWeight": "normal"},
    "view": {"stroke": FAINT},
}


def finished(chart: TopLevel, title: str, *lines: str) -> TopLevel:
    """The chart with its title, lines below the title, and the style that all charts share."""
    heading = alt.TitleParams(text=title, subtitle=[line for line in lines if line], anchor="start")
    titled: TopLevel = chart.properties(
        title=heading, background="#ffffff", padding=16, config=alt.Config.from_dict(_CONFIG)
    )
    return titled


def layered(*charts: alt.Chart, data: alt.InlineData | None = None, **sizes: Any) -> alt.LayerChart:
    """Charts layered on each other, the first one lowest."""
    return alt.LayerChart(data=alt.Undefined if data is None else data, layer=list(charts), **sizes)


def scatter(
    rows: Sequence[dict[str, Any]], names: Sequence[str], across: alt.X, up: alt.Y, tip: Sequence[alt.Tooltip]
) -> alt.Chart:
    """Points in the colours and shapes of their implementations."""
    colour, shape = implementation_colour(names), implementation_shape(names)
    points: alt.Chart = alt.Chart(values(rows)).mark_point(filled=True, size=24, opacity=0.75)
    drawn: alt.Chart = points.encode(across, up, colour, shape, tooltip=list(tip))
    return drawn


def section_title(text: str) -> alt.TitleParams:
    """Title of a part of a chart."""
    return alt.TitleParams(text, anchor="start", fontSize=14, offset=6)


def values(rows: Sequence[dict[str, Any]]) -> alt.InlineData:
    """Rows as inline data of a chart, without pandas. As JSON text, since altair copies lists for every outer chart."""
    return alt.InlineData(values=json.dumps(list(rows)), format=alt.JsonDataFormat(type="json"))


class LogRange(NamedTuple):
    """Range and ticks of a logarithmic axis."""

    domain: tuple[float, float]
    ticks: list[float]

    @property
    def scale(self) -> alt.Scale:
        return alt.Scale(type="log", domain=list(self.domain), nice=False)


def log_range(low: float, high: float, *, room: float = 1.15, most: int = 8) -> LogRange:
    """A range around both values, wider by the factor `room` at both ends, with at most `most` ticks.

    Ticks are at several steps per decade if these are few enough, else at decades, or at every n-th decade.
    """
    first, last = low / room, high * room
    decades = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if first <= tick <= last]
        if len(inside) <= most:
            break
    stride = math.ceil(len(inside) / most)
    return LogRange((first, last), inside[::stride] or [low])


def ratio_range(low: float, high: float, *, most: int = 9) -> LogRange:
    """A range for speedups that includes 1, with room for a label on the right. Ticks are round ratios."""
    low, high = min(low, 1.0), max(high, 1.0)
    span = max(high / low, 1.05)
    domain = (low / span**0.04, high * span**0.12)
    if span > _MOST_EVEN_SPAN:
        return LogRange(domain, log_range(domain[0], domain[1], room=1.0, most=most).ticks)
    for step in _RATIO_STEPS:
        ticks = [number * step for number in range(math.ceil(domain[0] / step), math.floor(domain[1] / step) + 1)]
        if len(ticks) <= most:
            break
    return LogRange(domain, [round(tick, 2) for tick in ticks])


_RATIO_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
"""Steps between ticks, from fine to coarse. Each has a multiple at 1."""
_MOST_EVEN_SPAN = 4.0
"""Largest quotient of the highest and lowest ratio for which ticks are evenly spaced."""
TIP_WORDS = {"value": "mean", "low": "interval from", "high": "interval to"}
"""Field of an estimate -> its name in a tooltip."""


def spread(value: float, implementation: str, implementations: Sequence[str], factor: float) -> float:
    """The value, shifted right by `factor` for each implementation before it, so that points do not overlap.

    Points are never shifted left. There a sloping limit is lower, and a point could seem to exceed it.
    """
    return float(value * factor ** implementations.index(implementation))
