"""Prints lists of names with descriptions: two columns on a terminal, tabs in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

import click

WIDEST = 120
"""Columns of help texts and lists on wide terminals: longer lines are hard to read."""


def print_rows(rows: Iterable[tuple[str, ...]]) -> None:
    """On a terminal two columns that fit it, the second of all that is not empty; tabs between all cells elsewhere."""
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
    """``What it is (28 operators, 153 cases).``, or the cells with commas where the first is no sentence."""
    first, *more = cells
    known = ", ".join(filter(None, more))
    if known and first.endswith("."):
        return f"{first[:-1]} ({known})."
    return ", ".join(filter(None, (first, known)))
