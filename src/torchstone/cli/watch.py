"""``torchstone watch``: judge a folder of kernels, and again each kernel whose files change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from torchstone.cli.parameters import split_commas, timeout_options

SECONDS = {"compile_seconds": 20.0, "check_seconds": 20.0, "measure_seconds": 20.0}
"""Default deadlines of the stages. They are shorter than those of a run, because the user waits for verdicts."""


@click.command(short_help="Judge a folder of kernels, and again whatever changes.")
@click.argument("kernels_dir", type=click.Path(path_type=Path))
@click.option("--suite", metavar="NAME", default="smoke", show_default=True, help="Where the cases come from.")
@click.option("--ops", multiple=True, metavar="NAMES", help="Only these operators, comma separated.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; default: the suite's choice.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--judges", "--num-workers", "judges", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--isolation", type=click.Choice(["strict", "best", "none"]), default="best", show_default=True)
@click.option("--effort", type=click.Choice(["quick", "normal", "thorough"]), default="quick", show_default=True)
@click.option("--no-measure", is_flag=True, help="Check only, time nothing.")
@timeout_options()
def watch(kernels_dir: Path, **given: Any) -> int:
    """Judge the kernels of a folder, then again each kernel whose files are saved. Ctrl-C ends it.

    The folder is read as backend `directory` reads it. On a terminal a table shows the newest verdicts; in a pipe each
    verdict is a line.
    """
    from torchstone.api import Judge
    from torchstone.api.folder_watch import FolderWatch, changes_of
    from torchstone.api.jobs_for_kernels import Purpose
    from torchstone.cli.closed_pipes import is_closed_pipe
    from torchstone.cli.run import deadlines_of
    from torchstone.cli.watch_view import view_for
    from torchstone.schema import Deadlines

    changes = changes_of(kernels_dir)
    names = ("suite", "device", "judges", "isolation", "effort")
    settings = {name: given[name] for name in names} | {"dtypes": split_commas(given["dtypes"])}
    settings["deadlines"] = deadlines_of(given, Deadlines(**SECONDS))
    purpose: Purpose = "check" if given["no_measure"] else "evaluate"
    with Judge(**settings) as judge, view_for(sys.stdout) as view:
        watched = FolderWatch(kernels_dir, judge, view, purpose, split_commas(given["ops"]))
        watched.begin()
        for _ in changes:
            if is_closed_pipe(sys.stdout):
                break
            watched.look()
    return 0
