"""Tables of a sweep: one per operation, a row for each implementation at each point."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from torchstone.reports.console import make_table
from torchstone.schema.sweep import SweepRecord, SweepRow
from torchstone.sweeps.rows import timed_rows

_COLUMNS = ("batch", "seq", "dim", "implementation", "time (ms)", "memory (MB)", "calls/s", "efficiency (%)", "GB/s")


def print_sweep(console: Console, records_or_rows: Iterable[SweepRecord | SweepRow]) -> None:
    """Print a table for each operation."""
    rows: list[SweepRow] = []
    for item in records_or_rows:
        rows.extend([item] if isinstance(item, SweepRow) else timed_rows([item]))
    for operation in dict.fromkeys(row.operation for row in rows):
        console.print(operation, markup=False)
        table = make_table(console, "", _COLUMNS)
        for row in rows:
            if row.operation == operation:
                table.add_row(*_cells(row))
        console.print(table)


def _cells(row: SweepRow) -> tuple[str, ...]:
    place = (row.batch_size, row.sequence_length, row.tensor_dimension)
    figures = (row.time_ms, row.memory_mb, row.inference_speed, row.gpu_efficiency, row.throughput_gbps)
    return (*map(str, place), row.implementation, *("" if value is None else f"{value:.4g}" for value in figures))
