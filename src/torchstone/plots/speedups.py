"""Charts the speedup over PyTorch as bars and heat maps, and the share of the device's limit as heat maps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from torchstone.measuring.grid_means import BASELINE, Estimate, GridPoint, geometric_mean, grouped, point_of, speedups
from torchstone.plots import style
from torchstone.schema import SweepRow

ALL = "All operations"
_BAR_STEP, _BAR_WIDTH = 22, 520
_CELL_WIDTH, _NARROW_CELL_WIDTH, _CELL_HEIGHT = 40, 31, 26
"""Sizes of a cell in pixels. The narrow width is for more than three implementations side by side."""
_MAX_COLUMNS_WITH_TEXT = 16
"""Most columns of a heat map whose cells show their value as text. With more, cells show only colour."""
_SLOWER, _EQUAL, _FASTER = "#b35806", "#f7f7f7", "#2166ac"
"""Orange and blue, which can be told apart by people with any colour vision."""


_SHARE_COLOURS = ("#f7fbff", "#8fc1de", "#08306b")
"""Colours from 0 to 100 percent."""


class _HeatMap(NamedTuple):
    """The cells of a heat map and their colours."""

    rows: list[dict[str, Any]]
    """`operation`, `implementation`, `seq`, `dim`, `shade` (what is coloured) and `text`."""
    colour: alt.Color
    dark: str
    """Vega expression that is true for dark cells, whose text must be light."""


def speedup_chart(rows: Sequence[SweepRow], device: str | None = None) -> style.TopLevel | None:
    """Bar chart of the geometric mean over the grid, per operation and implementation. None without the baseline."""
    found = _speedups(rows)
    bars = [
        {"operation": operation, "implementation": name, "count": len(table), **geometric_mean(list(table))._asdict()}
        for operation, by_name in _with_all_operations(found).items()
        for name, table in by_name.items()
    ]
    if not bars:
        return None
    for bar in bars:
        bar["text"] = f"{bar['value']:.2f}x"
        bar["text_at"] = max(bar["high"], 1.0)
    operations = list(dict.fromkeys(bar["operation"] for bar in bars))
    layers = _bar_layers(bars, style.ordered(row.implementation for row in rows))
    header = alt.Header(labelAngle=0, labelAlign="left", labelOrient="left", labelPadding=8)
    chart = layers.facet(row=alt.Row("operation:N", sort=operations, title=None, header=header), spacing=10)
    note = "Geometric mean over the points of the grid, with its 95 % interval. 1: as fast as PyTorch."
    return style.finished(chart, f"Speedup over {BASELINE}", style.subtitle(rows[0].dtype, rows[0].mode, device), note)


def _speedups(rows: Sequence[SweepRow]) -> dict[str, dict[str, dict[GridPoint, Estimate]]]:
    """Operation -> implementation -> point -> speedup."""
    by_operation = grouped(rows, lambda row: row.operation)
    found = {operation: speedups(own) for operation, own in by_operation.items()}
    return {operation: by_name for operation, by_name in found.items() if by_name}


def _with_all_operations(
    found: Mapping[str, Mapping[str, Mapping[GridPoint, Estimate]]],
) -> dict[str, dict[str, list[Estimate]]]:
    """Operation -> implementation -> speedups; with several operations also under `ALL`."""
    lists = {
        operation: {name: list(by_name[name].values()) for name in style.ordered(by_name)}
        for operation, by_name in found.items()
    }
    if len(lists) < 2:
        return lists
    names = style.ordered(name for by_name in lists.values() for name in by_name)
    everything = {name: [one for by_name in lists.values() for one in by_name.get(name, [])] for name in names}
    return {**lists, ALL: everything}


def _bar_layers(bars: Sequence[dict[str, Any]], implementations: Sequence[str]) -> alt.LayerChart:
    low, high = min(bar["low"] for bar in bars), max(bar["high"] for bar in bars)
    span = style.ratio_range(low, high)
    axis = alt.Axis(values=span.ticks, format=".3~g", labelOverlap=True)
    across = alt.X("value:Q", title=f"Speedup over {BASELINE}", scale=span.scale, axis=axis)
    shown = [name for name in implementations if name != BASELINE]
    down = alt.Y("implementation:N", title=None, sort=shown, axis=alt.Axis(ticks=False, domain=False, labelPadding=6))
    tip = [
        alt.Tooltip("operation:N", title="Operation"),
        alt.Tooltip("implementation:N", title="Implementation"),
        *(alt.Tooltip(f"{key}:Q", title=word, format=".4f") for key, word in style.TIP_WORDS.items()),
        alt.Tooltip("count:Q", title="points"),
    ]
    base = alt.Chart().encode(across, down)
    return style.layered(
        base.mark_bar(height=14).encode(
            alt.X2Datum(1), style.implementation_colour(implementations, legend=False), tooltip=tip
        ),
        base.mark_rule(color=style.INK, strokeWidth=1.5).encode(alt.X("low:Q"), alt.X2("high:Q")),
        base.mark_text(align="left", dx=6, color=style.INK, fontSize=11).encode(alt.X("text_at:Q"), alt.Text("text:N")),
        alt.Chart().mark_rule(color=style.INK).encode(alt.XDatum(1)),
        data=style.values(bars),
    ).properties(width=_BAR_WIDTH, height=alt.Step(_BAR_STEP))


def speedup_map(rows: Sequence[SweepRow], device: str | None = None) -> style.TopLevel | None:
    """Heat map of speedup by sequence length and dimension, geometric mean over batch sizes. None: no baseline."""
    cells = [
        {"operation": operation, "implementation": name, **cell}
        for operation, by_name in _speedups(rows).items()
        for name, table in by_name.items()
        for cell in _cells({point: estimate.value for point, estimate in table.items()})
    ]
    if not cells:
        return None
    for cell in cells:
        cell["shade"], cell["text"] = math.log2(cell["value"]), f"{cell['value']:.2f}"
    most = max(0.1, *(abs(cell["shade"]) for cell in cells))
    colour = alt.Color(
        "shade:Q",
        scale=alt.Scale(domain=[-most, 0, most], range=[_SLOWER, _EQUAL, _FASTER], interpolate="lab", clamp=True),
        legend=alt.Legend(
            title=f"Speedup over {BASELINE}",
            values=[
                math.log2(tick)
                for tick in style.ratio_range(2**-most, 2**most, most=7).ticks
                if abs(math.log2(tick)) <= most
            ],
            labelExpr="format(pow(2, datum.value), '.3~g') + 'x'",
            orient="top",
            gradientLength=260,
        ),
    )
    drawn = _HeatMap(cells, colour, f"abs(datum.shade) > {0.6 * most}")
    note = "Geometric mean over batch sizes. Blue: faster than PyTorch, orange: slower."
    return _map_chart(drawn, rows, f"Speedup over {BASELINE} by sequence length and dimension", device, note)


def efficiency_map(rows: Sequence[SweepRow], device: str | None = None) -> style.TopLevel | None:
    """Heat map of the share of the device's measured limit, geometric mean over batch sizes. None without a limit."""
    known = [row for row in rows if row.gpu_efficiency]
    cells = [
        {"operation": operation, "implementation": name, **cell}
        for (operation, name), own in grouped(known, lambda row: (row.operation, row.implementation)).items()
        for cell in _cells({point_of(row): row.gpu_efficiency or 0.0 for row in own})
    ]
    if not cells:
        return None
    for cell in cells:
        cell["shade"], cell["text"] = cell["value"], f"{cell['value']:.0f}"
    colour = alt.Color(
        "shade:Q",
        scale=alt.Scale(domain=[0, 50, 100], range=_SHARE_COLOURS, interpolate="lab", clamp=True),
        legend=alt.Legend(title="Percent of the measured limit", orient="top", gradientLength=260),
    )
    note = "Geometric mean over batch sizes, percent of the measured limit; above 100 the limit itself is in doubt."
    return _map_chart(_HeatMap(cells, colour, "datum.shade > 65"), rows, "GPU efficiency", device, note)


def _cells(table: Mapping[GridPoint, float]) -> Iterable[dict[str, Any]]:
    for (length, dimension), points in grouped(table, lambda point: point[1:]).items():
        mean = geometric_mean([Estimate(*(table[point],) * 3) for point in points]).value
        yield {"seq": length, "dim": dimension, "value": mean, "count": len(points)}


def _map_chart(drawn: _HeatMap, rows: Sequence[SweepRow], title: str, device: str | None, note: str) -> style.TopLevel:
    operations = list(dict.fromkeys(cell["operation"] for cell in drawn.rows))
    names = style.ordered(cell["implementation"] for cell in drawn.rows)
    base = alt.Chart().encode(
        alt.X("dim:O", title="Dimension", axis=alt.Axis(labelAngle=0)),
        alt.Y("seq:O", title="Sequence length", sort="descending"),
    )
    tip = [
        *(alt.Tooltip(f"{key}:N", title=key.capitalize()) for key in ("operation", "implementation")),
        alt.Tooltip("seq:O", title="Sequence length"),
        alt.Tooltip("dim:O", title="Dimension"),
        alt.Tooltip("value:Q", title="mean", format=".4g"),
        alt.Tooltip("count:Q", title="points"),
    ]
    layers: list[alt.Chart] = [base.mark_rect().encode(drawn.colour, tooltip=tip)]
    if len({cell["dim"] for cell in drawn.rows}) <= _MAX_COLUMNS_WITH_TEXT:
        light = alt.condition(drawn.dark, alt.value("#ffffff"), alt.value(style.INK))
        layers.append(base.mark_text(fontSize=11).encode(alt.Text("text:N"), color=light))
    sizes = {
        "width": alt.Step(_CELL_WIDTH if len(names) <= 3 else _NARROW_CELL_WIDTH),
        "height": alt.Step(_CELL_HEIGHT),
    }

    def panel(operation: str, name: str) -> alt.LayerChart | None:
        own = [cell for cell in drawn.rows if (cell["operation"], cell["implementation"]) == (operation, name)]
        return (
            style.layered(*layers, data=style.values(own)).properties(
                title=alt.TitleParams(name, fontSize=12, offset=4), **sizes
            )
            if own
            else None
        )

    # Not a facet: Vega puts cells into the wrong panels if an implementation lacks an operation.
    lines = [
        alt.hconcat(*filter(None, (panel(operation, name) for name in names)), spacing=16).properties(
            title=style.section_title(operation)
        )
        for operation in operations
    ]
    chart = alt.vconcat(*lines, spacing=20)
    return style.finished(chart, title, style.subtitle(rows[0].dtype, rows[0].mode, device), note)
