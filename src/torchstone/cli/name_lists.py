"""Prints lists of names with descriptions: two columns on a terminal, tabs in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

import click

WIDEST = 120
"""Most columns of help texts and lists: longer lines are hard to read."""


def print_rows(rows: Iterable[tuple[str, ...]]) -> None:
    """Print the rows. On a terminal in two columns, the second with all further cells; else with tabs between cells."""
    listed = list(rows)
    if not sys.stdout.isatty():
        for row in listed:
            click.echo("\t".join(row).rstrip("\t"))
        return
    width = min(shutil.get_terminal_size().columns, WIDEST)
    formatter = click.HelpFormatter(width=width)
    formatter.write_dl([(name, _sentence(cells)) for name, *cells in listed], col_max=width // 2)
    click.echo(formatter.getvalue(), nl=False)


def _sentence(cells: list[str]) -> str:
    """``What it is (28 operators, 153 cases).``; if the first cell is no sentence, the cells with commas between."""
    first, *more = cells
    details = ", ".join(filter(None, more))
    if details and first.endswith("."):
        return f"{first[:-1]} ({details})."
    return ", ".join(filter(None, (first, details)))
