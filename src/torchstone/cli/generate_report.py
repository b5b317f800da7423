"""``torchstone generate report``: the scores of one or several runs of generation."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from torchstone.cli.parameters import NumberRange


@click.command(short_help="Show the scores of runs of generation, side by side.")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@click.option(
    "--p",
    "ps",
    multiple=True,
    type=NumberRange(min=0),
    metavar="P",
    help="The p of fast_p: right and more than p times as fast. May be repeated; default: 1, 1.5, 2.",
)
@click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="K",
    help="The k of pass@k, of strategy best-of-n. May be repeated; default: 1, 5, 10.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def report(runs: tuple[Path, ...], ps: tuple[float, ...], ks: tuple[int, ...], as_json: bool) -> int:
    """Show how often the models were right, how fast their kernels are, and what they cost. Two runs are compared.

    RUN is a run folder or a run id under generated_kernels/. Intervals are 95 %, over operators.
    """
    from torchstone.generation import read_generation
    from torchstone.generation.score_tables import print_report
    from torchstone.generation.scores import KS, PS, score_report
    from torchstone.reports.console import make_console
    from torchstone.schema import encode

    stored = [read_generation(_folder(run)) for run in runs]
    made = score_report(stored, ps or PS, ks or KS)
    problems = [f"{each.folder}: {each.note}" for each in stored if each.note]
    if as_json:
        for problem in problems:
            click.echo(f"warning: {problem}", err=True)
        click.echo(encode(made).decode())
    else:
        print_report(made, make_console(sys.stdout), problems)
    return 0


def _folder(run: Path) -> Path:
    """The run folder: the given path, or the folder of this run id."""
    from torchstone.generation.request import OUTPUT_DIR

    return run if run.exists() or run.is_absolute() else OUTPUT_DIR / run
