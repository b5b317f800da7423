"""Makes consoles and tables that fit a terminal, a narrow terminal, or a pipe.

A terminal gets colour and tables no wider than itself. A pipe gets Markdown tables without colour and without folded
cells. COLUMNS, if set, is the width of a pipe: a table that does not fit may then be printed with fewer columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 8192
"""Assumed width of a pipe, in columns, if COLUMNS is not set. Every table fits."""


def make_console(stream: TextIO) -> Console:
    """A console for the stream. `NO_COLOR` is honoured; a stream that is no terminal gets no colour or line breaks."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_pipe_width(), force_terminal=False, no_color=True)


def _pipe_width() -> int:
    columns_text = os.environ.get("COLUMNS", "")
    return int(columns_text) if columns_text.isdecimal() and int(columns_text) > 0 else PIPE_WIDTH


def make_table(console: Console, title: str, columns: Iterable[str] = ()) -> Table:
    """An empty table: in terminal style if the console is a terminal, else in Markdown."""
    if console.is_terminal:
        style = box.SIMPLE_HEAD
        return Table(*columns, title=title, title_justify="left", box=style, pad_edge=False, padding=(0, 1, 0, 0))
    return Table(*columns, box=box.MARKDOWN)


def fits(console: Console, table: Table) -> bool:
    """Whether the table fits the console without folded cells."""
    return natural_width(console, table) <= console.width


def natural_width(console: Console, table: Table) -> int:
    """Width of the table in columns if no cell is folded."""
    unbounded = console.options.update_width(PIPE_WIDTH)
    return Measurement.get(console, unbounded, table).maximum


def print_table(console: Console, table: Table, *, whole: bool = False) -> None:
    """Print the table without trailing blanks. Cells are folded only on a terminal, and not if `whole`."""
    unfolded = whole or not console.is_terminal
    width = max(console.width, natural_width(console, table)) if unfolded else console.width
    console.print(_Trimmed(table, width), crop=False, no_wrap=True, overflow="ignore")


def print_line(console: Console, text: str | Text) -> None:
    """Print one line as it is, however long: no markup, no folding."""
    console.print(text, soft_wrap=True, markup=False)


class _Trimmed:
    """Prints something without blanks at the ends of lines and without empty lines before and after it."""

    def __init__(self, inner: RenderableType, width: int) -> None:
        self._inner, self._width = inner, width  # rich prints nothing wider than the console without this

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments = console.render(self._inner, console.options.update_width(self._width))
        lines = [_trim(line) for line in Segment.split_lines(segments)]
        filled = [number for number, line in enumerate(lines) if line]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


def _trim(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    if line:
        last = line[-1]
        line = [*line[:-1], Segment(last.text.rstrip(), last.style, last.control)]
    return line
