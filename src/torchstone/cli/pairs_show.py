"""``torchstone pairs show``: shows the results of a run over pairs again. `pairs run` prints its report from here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from torchstone.harness.report import PairsReport


@click.command(short_help="Show the results of a run again.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def show(run: Path, as_json: bool) -> int:
    """Show a run again: its folder, or its id if it is in artifacts/. It may be finished, stopped or still going on."""
    folder, report = read_report(run)
    if as_json:
        print_json(report, folder)
    else:
        print_report(report, folder)
    return 0


def read_report(run: Path) -> tuple[Path, PairsReport]:
    """The folder and report of the run that the user named. Warns if the end of its journal is damaged."""
    from torchstone.harness.run import find_run, read_pairs

    stored = read_pairs(find_run(run))
    if stored.note:
        click.echo(f"warning: {stored.note}", err=True)
    return stored.folder, stored.report


def print_report(report: PairsReport, folder: Path, quiet: bool = False) -> None:
    """Print tables and the closing line; with ``quiet`` only the closing line."""
    from torchstone.harness.render import closing_line, render
    from torchstone.reports.console import make_console

    console = make_console(sys.stdout)
    if quiet:
        console.print(closing_line(report.summary, folder), soft_wrap=True)
    else:
        render(report, folder, console)


def print_json(report: PairsReport, folder: Path, **more: Any) -> None:
    """Print the content of `benchmark_test_results.json` with the run folder as one JSON object."""
    from msgspec.structs import asdict

    from torchstone.schema import encode

    click.echo(encode({"run_folder": str(folder), **more, **asdict(report)}))
