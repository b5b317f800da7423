"""What ``torchstone watch`` shows: a table that is updated in place on a terminal, lines in a pipe."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from torchstone.api import Evaluation
from torchstone.api.folder_watch import View
from torchstone.cli.progress import can_redraw
from torchstone.reports.safe_text import counted, one_line


def _speed(evaluation: Evaluation) -> str:
    if evaluation.speedup is None:
        return "–"
    return f"{evaluation.speedup:.2f}x ({evaluation.speedup_low:.2f} to {evaluation.speedup_high:.2f})"


def _remark(evaluation: Evaluation) -> str:
    failures = evaluation.failures()
    return one_line(failures[0]) if failures else ""


class PlainView:
    """Prints one line for each verdict."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began: dict[str, float] = {}

    def judging(self, operator: str) -> None:
        self._began[operator] = time.monotonic()

    def judged(self, operator: str, evaluation: Evaluation) -> None:
        cases = counted(len(evaluation.records), "case")
        seconds = time.monotonic() - self._began.get(operator, time.monotonic())
        remark = _remark(evaluation)
        line = f"{evaluation.verdict:<11}  {operator}  {cases}  {_speed(evaluation)}  {seconds:.1f} s"
        self._print(f"{line}  {remark}" if remark else line)

    def failed(self, operator: str, message: str) -> None:
        self._print(f"not judged   {operator}  {one_line(message)}")

    def removed(self, operator: str) -> None:
        self._print(f"removed      {operator}")

    def noted(self, message: str) -> None:
        if message:
            self._print(f"note: {one_line(message)}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class TableView:
    """Shows a table with one row for each operator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, str, str]] = {}
        self._note = ""

    def judging(self, operator: str) -> None:
        self._set(operator, "judging …", "", "")

    def judged(self, operator: str, evaluation: Evaluation) -> None:
        self._set(operator, evaluation.verdict, _speed(evaluation), _remark(evaluation))

    def failed(self, operator: str, message: str) -> None:
        self._set(operator, "not judged", "", one_line(message))

    def removed(self, operator: str) -> None:
        with self._lock:
            self._rows.pop(operator, None)

    def noted(self, message: str) -> None:
        self._note = one_line(message)

    def _set(self, operator: str, *cells: str) -> None:
        with self._lock:
            self._rows[operator] = (cells[0], cells[1], cells[2])

    def table(self) -> Table:
        made = Table("operator", "verdict", "speedup", "first failure", caption=self._note or "Ctrl-C ends it")
        with self._lock:
            rows = sorted(self._rows.items())
        for operator, cells in rows:
            made.add_row(Text(operator), *map(Text, cells))
        return made


@contextlib.contextmanager
def view_for(stream: TextIO) -> Iterator[View]:
    """Yields a table view for a terminal, else a plain view."""
    if not can_redraw(stream):
        yield PlainView(stream)
        return
    view = TableView()
    with Live(get_renderable=view.table, console=Console(file=stream, highlight=False), refresh_per_second=4):
        yield view
