"""What commands put on stdout: tables for people, one JSON object for programs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from torchstone.reports import RunReport
from torchstone.reports.render import closing_line, make_console, render
from torchstone.schema import encode


def terminal_width() -> int | None:
    """Columns of the terminal; None where stdout is none, and lines are not broken."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_report(report: RunReport, folder: Path, quiet: bool = False) -> None:
    """Tables and the closing line, or that line alone."""
    console = make_console(sys.stdout)
    if quiet:
        console.print(closing_line(report.summary, folder), soft_wrap=True)
    else:
        render(report, folder, console)


def print_json(report: RunReport, folder: Path, **more: Any) -> None:
    """The summary and where the run lies."""
    print(encode({"run_folder": str(folder), **more, "summary": report.summary}).decode())
