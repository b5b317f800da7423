"""Charts bandwidth against the bytes of a call: every point of a sweep, under the limit of the device.

Where starting a kernel takes longer than moving its bytes, the limit is a slope; beyond, it is the device's bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from torchstone.measuring.grid_means import grouped
from torchstone.plots import style
from torchstone.schema import SpeedOfLight, SweepRow

_WIDTH, _HEIGHT, _COLUMNS = 270, 210, 3
_SHIFT_FACTOR = 1.12
"""Factor by which points of different implementations are shifted. Sizes of the default grid are a factor 2 apart."""


def size_chart(
    rows: Sequence[SweepRow], lights: Sequence[SpeedOfLight] = (), device: str | None = None
) -> style.TopLevel | None:
    """Chart with one panel per operation, from rows of one mode and dtype. None: no row has a bandwidth."""
    known = [row for row in rows if row.throughput_gbps]
    if not known:
        return None
    names = style.ordered(row.implementation for row in known)
    points = [_point(row, names) for row in known]
    sizes = [point["at"] for point in points]
    limits = list(_limits(lights, min(sizes), max(sizes)))
    upwards = [point["rate"] for point in points] + [limit["rate"] for limit in limits]
    wide, high = style.log_range(min(sizes), max(sizes), most=6), style.log_range(min(upwards), max(upwards), most=7)
    across = alt.X("at:Q", title="Bytes that any kernel must move (MB)", scale=wide.scale, axis=_axis(wide))
    up = alt.Y("rate:Q", title="Bandwidth (GB/s)", scale=high.scale, axis=_axis(high))
    charts = []
    for operation, own in grouped(points, lambda point: point["operation"]).items():
        layers = [_point_layer(own, names, across, up)]
        if limits:
            line = alt.Chart(style.values(limits)).mark_line(color=style.ROOF, strokeDash=[5, 3], strokeWidth=1.6)
            layers.append(line.encode(across, up))
        panel = style.layered(*layers).properties(width=_WIDTH, height=_HEIGHT, title=style.section_title(operation))
        charts.append(panel)
    note = "Dashed: what the device allows, by its measured latency and bandwidth." if limits else ""
    beside = "Implementations that move the same bytes are drawn side by side, the first at its place."
    subtitle = style.subtitle(rows[0].dtype, rows[0].mode, device)
    chart = alt.concat(*charts, columns=_COLUMNS, spacing=22)
    return style.finished(chart, "Bandwidth against the size of a call", subtitle, note, beside)


def _point(row: SweepRow, names: Sequence[str]) -> dict[str, Any]:
    rate = row.throughput_gbps or 0.0
    megabytes = rate * row.time_ms  # GB/s times ms
    return {
        "operation": row.operation,
        "implementation": row.implementation,
        "megabytes": megabytes,
        "at": style.spread(megabytes, row.implementation, names, _SHIFT_FACTOR),
        "rate": rate,
        "words": f"batch {row.batch_size}, seq {row.sequence_length}, dim {row.tensor_dimension}",
    }


def _limits(lights: Sequence[SpeedOfLight], first: float, last: float) -> Iterator[dict[str, float]]:
    """Yield the corners of the limit's line, between the smallest and the largest call."""
    if not lights:
        return
    bandwidth = max(light.bytes_per_second for light in lights) / 1e9
    latency_ms = min(light.latency_ns for light in lights) / 1e6
    bend = bandwidth * latency_ms
    for megabytes in sorted({first, min(max(bend, first), last), last}):
        yield {"at": megabytes, "rate": min(bandwidth, megabytes / latency_ms) if latency_ms else bandwidth}


def _axis(span: style.LogRange) -> alt.Axis:
    return alt.Axis(values=span.ticks, format=",~g")


def _point_layer(points: Sequence[dict[str, Any]], names: Sequence[str], across: alt.X, up: alt.Y) -> alt.Chart:
    tip = [
        alt.Tooltip("implementation:N", title="Implementation"),
        alt.Tooltip("words:N", title="Point"),
        alt.Tooltip("megabytes:Q", title="MB", format=".4g"),
        alt.Tooltip("rate:Q", title="GB/s", format=".4g"),
    ]
    return style.scatter(points, names, across, up, tip)
