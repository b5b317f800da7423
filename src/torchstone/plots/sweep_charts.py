"""Makes all charts of a sweep by name: one set for each mode and dtype in the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from torchstone.measuring.grid_means import GridPoint, grouped, point_of
from torchstone.measuring.speed_of_light import has_limit
from torchstone.plots import style
from torchstone.plots.bandwidth_by_size import size_chart
from torchstone.plots.roofline import RooflinePoint, ceilings_of, roofline_point, sweep_roofline
from torchstone.plots.speedups import efficiency_map, speedup_chart, speedup_map
from torchstone.plots.trends import bandwidth_chart, time_chart
from torchstone.schema import SpeedOfLight, SweepRecord, SweepRow

_FROM_ROWS: dict[str, Callable[[Sequence[SweepRow], str | None], style.TopLevel | None]] = {
    "time": time_chart,
    "bandwidth": bandwidth_chart,
    "speedup": speedup_chart,
    "heatmap": speedup_map,
    "efficiency": efficiency_map,
}


def sweep_charts(
    rows: Sequence[SweepRow], records: Sequence[SweepRecord] = (), only: Collection[str] | None = None
) -> dict[str, style.TopLevel]:
    """Name -> chart, without charts for which the rows lack data.

    Names end in dtype and mode if there are several. `records` give the device's name and its measured limits; without
    them there is no roofline.
    """
    series = grouped(rows, lambda row: (row.dtype, row.mode))
    drawn = {}
    for (dtype, mode), own in series.items():
        theirs = [one for one in records if (one.point.dtype, one.point.mode) == (dtype, mode)]
        ending = f"-{dtype}-{mode.replace('+', '-')}" if len(series) > 1 else ""
        drawn.update({name + ending: chart for name, chart in _charts(own, theirs, only)})
    return drawn


def _charts(
    rows: Sequence[SweepRow], records: Sequence[SweepRecord], only: Collection[str] | None
) -> Iterator[tuple[str, style.TopLevel]]:
    device = _device(records)
    for name, draw in _makers(records).items():
        if only is None or name in only:
            chart = draw(rows, device)
            if chart is not None:
                yield name, chart


def _makers(
    records: Sequence[SweepRecord],
) -> dict[str, Callable[[Sequence[SweepRow], str | None], style.TopLevel | None]]:
    lights = {_key(one): one.light for one in records if one.light is not None and has_limit(one.light)}
    return {
        **_FROM_ROWS,
        "size": lambda rows, device: size_chart(rows, list(lights.values()), device),
        "roofline": lambda rows, device: _roofline(rows, lights, device),
    }


def _key(record: SweepRecord) -> tuple[str, GridPoint]:
    point = record.point
    return point.operation, (point.batch_size, point.sequence_length, point.tensor_dimension)


def _device(records: Sequence[SweepRecord]) -> str | None:
    """The names of the devices, joined; None if there is none."""
    return ", ".join(dict.fromkeys(one.device for one in records)) or None


def _roofline(
    rows: Sequence[SweepRow], lights: dict[tuple[str, GridPoint], SpeedOfLight], device: str | None
) -> style.TopLevel | None:
    panels: dict[str, list[tuple[str, RooflinePoint]]] = {}
    for row in rows:
        light = lights.get((row.operation, point_of(row)))
        if light is not None:
            words = (
                f"{row.implementation}, batch {row.batch_size}, seq {row.sequence_length}, dim {row.tensor_dimension}"
            )
            point = roofline_point(light, row.time_ms * 1e6, words)
            panels.setdefault(row.operation, []).append((row.implementation, point))
    if not panels:
        return None
    return sweep_roofline(
        panels, ceilings_of(list(lights.values())), style.subtitle(rows[0].dtype, rows[0].mode, device)
    )
