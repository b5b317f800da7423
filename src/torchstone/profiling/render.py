"""Prints a profile as tables: in colour on a terminal, plain and at full width in a pipe.

A kernel chooses its own name, so names are shown as plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.reports.console import make_table, print_table
from torchstone.reports.safe_text import microseconds, one_line
from torchstone.schema import Profile, ProfiledKernel, ProfilerResult

MOST_ROWS = 30
_STATUS_COLOURS = {"profiled": "green", "absent": "yellow", "unavailable": "yellow", "failed": "red"}

Cell = Callable[[ProfiledKernel], str]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value}"


_OPTIONAL: dict[str, tuple[str, Cell]] = {
    "sm_percent": ("SM %", lambda kernel: _percent(kernel.sm_percent)),
    "memory_percent": ("memory %", lambda kernel: _percent(kernel.memory_percent)),
    "l2_hit_percent": ("L2 hits %", lambda kernel: _percent(kernel.l2_hit_percent)),
    "occupancy_percent": ("occupancy %", lambda kernel: _percent(kernel.occupancy_percent)),
    "registers_per_thread": ("registers", lambda kernel: _count(kernel.registers_per_thread)),
    "grid_size": ("grid", lambda kernel: _count(kernel.grid_size)),
    "block_size": ("block", lambda kernel: _count(kernel.block_size)),
}
"""Field -> (heading, cell) of columns that are shown if some kernel has the field."""


def render(profile: Profile, folder: Path, console: Console) -> None:
    """Print a table for every profiler with kernels, then a status line for each profiler, and the folder."""
    heading = f"{profile.case.operator}({profile.case.label}) on {profile.device}, {profile.calls} calls"
    console.print(Text(one_line(heading, limit=1000), "bold"), soft_wrap=True)
    for result in profile.results:
        if result.kernels:
            print_table(console, kernel_table(result, profile.calls, console))
    for result in profile.results:
        console.print(_status_line(result), soft_wrap=True)
    console.print(
        Text("times under a profiler show where time goes; to measure how long a call takes, use torchstone run")
    )
    console.print(Text(f"{folder}/", "bold"), soft_wrap=True)


def kernel_table(result: ProfilerResult, calls: int, console: Console) -> Table:
    """Table of the kernels that took longest, with the columns for which this profiler has values."""
    table = make_table(console, f"{result.profiler}: times under the profiler")
    known = [shown for field, shown in _OPTIONAL.items() if any(getattr(k, field) is not None for k in result.kernels)]
    table.add_column(f"{result.profiler}: {result.kernels[0].kind}", overflow="fold")
    for name in ("launches", "profiled µs per call", "share %", *(name for name, _ in known)):
        table.add_column(name, justify="right")
    total = sum(kernel.profiled_ns for kernel in result.kernels)
    for kernel in result.kernels[:MOST_ROWS]:
        share = 100 * kernel.profiled_ns / total if total else 0.0
        plain = (str(kernel.launches), microseconds(kernel.profiled_ns / calls), f"{share:.1f}")
        table.add_row(Text(one_line(kernel.name, limit=200)), *plain, *(cell(kernel) for _, cell in known))
    return table


def _status_line(result: ProfilerResult) -> Text:
    more = result.kernels_left_out + max(0, len(result.kernels) - MOST_ROWS)
    parts = [
        f"version {result.version}" if result.version else "",
        *result.files,
        f"{more} more kernels" if more else "",
        "" if result.status != "profiled" else "in the sandbox" if result.sandboxed else "outside the sandbox",
    ]
    status = Text(result.status, _STATUS_COLOURS[result.status])
    rest = "".join(f", {one_line(part)}" for part in parts if part)
    return Text.assemble(f"{one_line(result.profiler)}: ", status, rest)
