"""Prints the tables of a sweep: for every operation means over the grid, means by dimension, or every point.

A sweep of the default grid has 112 points per operation, too many to read. Unless every point is asked for, an
operation has one row per implementation and one row per dimension, followed by advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.measuring.grid_means import (
    Estimate,
    GridPoint,
    by_implementation,
    common_points,
    geometric_mean,
    grouped,
    time_ms,
)
from torchstone.reports.console import make_table, print_line, print_table
from torchstone.reports.failure_text import hanging
from torchstone.reports.safe_text import counted
from torchstone.schema import SkippedRow, SweepRow
from torchstone.sweeps.fastest_implementations import AXES, advice_lines, fastest, skipped_lines

MODES = {"fwd": "forward", "bwd": "backward", "fwd+bwd": "forward and backward"}
FEW_POINTS = 8
"""Most points of an operation that are always shown one by one."""

_METRICS = ("Time (ms)", "Memory (MB)", "Inference Speed", "GPU Efficiency")
_BEST = " *"

Series = tuple[str, str, str]
"""Operation, mode, dtype. Each series has its own table."""


def print_sweep(
    console: Console, rows: Sequence[SweepRow], skipped: Sequence[SkippedRow] = (), *, every_point: bool = False
) -> None:
    """Print a table per operation, mode and dtype, followed by advice on which implementation to use."""
    timed, left_out = grouped(rows, _series_of), grouped(skipped, _series_of)
    for series in dict.fromkeys((*timed, *left_out)):
        _print_series(console, series, timed.get(series, []), left_out.get(series, []), every_point)
    if not timed and not left_out:
        print_line(console, "Nothing was timed, and nothing was skipped.")


def _series_of(row: SweepRow | SkippedRow) -> Series:
    return row.operation, row.mode, row.dtype


def _print_series(
    console: Console, series: Series, rows: Sequence[SweepRow], skipped: Sequence[SkippedRow], every_point: bool
) -> None:
    operation, mode, dtype = series
    tables = by_implementation(rows)
    points = len({point for table in tables.values() for point in table})
    heading = f"{operation}, {MODES[mode]}, {dtype}: {counted(points, 'point')}"
    print_line(console, Text(heading, "bold"))
    if not rows:
        _print_sentences(console, ["No implementation was timed.", *skipped_lines(skipped)])
        return
    console.print()
    if every_point or points <= FEW_POINTS:
        print_table(console, _point_table(console, rows))
        if len(tables) > 1:
            _print_sentences(console, [f"{_BEST.strip()} clearly the fastest: its 95 % interval lies below all others"])
    else:
        _print_means(console, tables)
    _print_sentences(console, advice_lines(rows, skipped))


def _print_means(console: Console, tables: Mapping[str, Mapping[GridPoint, SweepRow]]) -> None:
    common = common_points(tables)
    if not common:
        _print_sentences(console, ["No point was timed with every implementation: there are no means to compare."])
        return
    print_line(console, f"Geometric mean of {counted(len(common), 'point')} timed with every implementation:")
    print_table(console, _mean_table(console, tables, common))
    if len({point[2] for point in common}) > 1:
        console.print()
        print_line(console, "Time (ms) by dim, geometric mean over batch and seq:")
        print_table(console, _dimension_table(console, tables, common))
    console.print()


def _mean_table(
    console: Console, tables: Mapping[str, Mapping[GridPoint, SweepRow]], common: Sequence[GridPoint]
) -> Table:
    table = _table(console, "Implementation", *_METRICS)
    for name, found in tables.items():
        rows = [found[point] for point in common]
        shares = [row.gpu_efficiency for row in rows]
        time = geometric_mean([time_ms(row) for row in rows]).value
        memory = _mean([row.memory_mb for row in rows])
        table.add_row(name, _milliseconds(time), _number(memory), _speed(1000 / time), _percent(_mean(shares)))
    return table


def _dimension_table(
    console: Console, tables: Mapping[str, Mapping[GridPoint, SweepRow]], common: Sequence[GridPoint]
) -> Table:
    table = _table(console, "dim", *tables, "Fastest", left=("Fastest",))
    winners = fastest(tables[name][point] for point in common for name in tables).at
    for dim, points in sorted(grouped(common, lambda point: point[2]).items()):
        times = [geometric_mean([time_ms(found[point]) for point in points]).value for found in tables.values()]
        table.add_row(str(dim), *map(_milliseconds, times), _fastest_cell([winners.get(point) for point in points]))
    return table


def _fastest_cell(names: Sequence[str | None]) -> str:
    """``Triton 14/16``: which implementation is fastest most often, and at how many of the points."""
    clear = [name for name in names if name is not None]
    if not clear:
        return "no clear winner"
    best = max(dict.fromkeys(clear), key=clear.count)
    return f"{best} {clear.count(best)}/{len(names)}"


def _point_table(console: Console, rows: Sequence[SweepRow]) -> Table:
    """Every row, by point and in the order of the implementations; the fastest are marked."""
    table = _table(console, *AXES, "Implementation", *_METRICS, left=("Implementation",))
    winners = fastest(rows).at
    found = by_implementation(rows)
    for point in sorted({point for one in found.values() for point in one}):
        for name, one in found.items():
            if point in one:
                row, is_best = one[point], winners.get(point) == name
                cells = (
                    *map(str, point),
                    name + _BEST * is_best,
                    _milliseconds(row.time_ms),
                    _number(row.memory_mb),
                    _speed(row.inference_speed),
                    _percent(row.gpu_efficiency),
                )
                table.add_row(*cells, style="green" if is_best else None)
    return table


def _table(console: Console, *columns: str, left: Iterable[str] = ("Implementation",)) -> Table:
    table = make_table(console, "")
    for name in columns:
        text = name in tuple(left)
        table.add_column(name, justify="left" if text else "right", no_wrap=text)
    return table


def _print_sentences(console: Console, sentences: Iterable[str]) -> None:
    """Print sentences, wrapped to the width of a terminal, and an empty line."""
    for sentence in sentences:
        for line in hanging(sentence, "  ", console.width if console.is_terminal else None):
            print_line(console, line)
    console.print()


def _mean(values: Sequence[float | None]) -> float | None:
    """Geometric mean; None unless all values are known and positive."""
    known = [value for value in values if value is not None and value > 0]
    if len(known) < len(values):
        return None
    return geometric_mean([Estimate(value, value, value) for value in known]).value


def _milliseconds(value: float) -> str:
    """Below 10 ms, four digits after the point: a sweep can distinguish 0.1 µs."""
    return f"{value:.4f}" if value < 10 else f"{value:.2f}" if value < 1000 else f"{value:,.0f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _speed(value: float) -> str:
    """Calls per second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"
