"""Prints the results of commands as tables or as one JSON object, and writes the files that options ask for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from torchstone.errors import UsageError
from torchstone.reports import RunReport
from torchstone.reports.closing_lines import closing_line, print_closing
from torchstone.reports.console import make_console
from torchstone.reports.failures import failure_entries
from torchstone.reports.junit import junit_xml
from torchstone.reports.render import render
from torchstone.reports.slowest_cases import duration_entries
from torchstone.schema import encode


def terminal_width() -> int | None:
    """Columns of the terminal. None if stdout is no terminal: then lines are not broken."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_report(
    report: RunReport, folder: Path, *, quiet: bool = False, wide: bool = False, durations: int | None = None
) -> None:
    """Print heading, tables and closing lines; with ``quiet`` only the last closing line."""
    console = make_console(sys.stdout)
    if quiet:
        print_closing(console, closing_line(report.summary, folder))
    else:
        render(report, folder, console, wide=wide, durations=durations or 0)


def print_json(report: RunReport, folder: Path, *, durations: int | None = None, **more: Any) -> None:
    """Print the run folder, the summary and the failures with their reasons as one JSON object."""
    told = {"run_folder": str(folder), **more, "summary": report.summary, "failures": failure_entries(report.results)}
    if durations is not None:
        told["durations"] = duration_entries(report.results, durations)
    print(encode(told).decode())


def write_file(path: Path, content: bytes) -> None:
    """Write a file that an option names. Raises UsageError if that fails."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}.") from error


def write_junit(report: RunReport, path: Path) -> None:
    """Write the run as JUnit XML."""
    write_file(path, junit_xml(report))
