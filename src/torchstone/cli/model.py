"""``torchstone model``: trains a PyTorch model with and without a folder of kernels, and compares."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import split_commas

if TYPE_CHECKING:
    from rich.console import Console

    from torchstone.installing.training_comparison import ModelComparison, Times

_SECONDS_BETWEEN_LINES = 5.0
_MOST_LOSS_ROWS = 6


@click.command(short_help="Train a model with and without a folder of kernels, and compare.")
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--kernels-dir",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of kernels, or torchstone-triton or torchstone-cuda.",
)
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated; default: all of the folder.")
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Training steps of each side.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of each side.")
@click.option(
    "--seed", type=click.IntRange(min=0, max=2**31), default=0, show_default=True, help="Seed of weights and data."
)
@click.option("--fallback", is_flag=True, help="torch's own operator serves calls that a kernel refuses.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def model(script: Path, kernels_dir: Path, ops: tuple[str, ...], device: str, as_json: bool, **given: Any) -> int:
    """Train a model with and without a folder of kernels, and compare outputs, gradients, losses and times.

    SCRIPT is a Python file with make_model() and make_batch(step). It and the kernels run with your rights.
    Exit code 0: the two agree within rounding. 1: they do not, or no kernel was called.
    """
    from torchstone.installing.model import ModelRequest, compare
    from torchstone.runs.devices import resolve_device

    request = ModelRequest(script, kernels_dir, resolve_device(device), split_commas(ops), **given)
    found = compare(request, _Progress().tell)
    code = 0 if found.agrees else 1
    if as_json:
        from torchstone.schema import encode

        click.echo(encode({"exit_code": code, "agrees": found.agrees, "comparison": found}).decode())
    else:
        _print(found)
    return code


class _Progress:
    """Prints the progress to stderr every few seconds."""

    def __init__(self) -> None:
        self._first = self._last_printed = time.monotonic()

    def tell(self, done: int, steps: int) -> None:
        now = time.monotonic()
        if done == 1:  # the time until then includes starting the processes
            self._first = self._last_printed = now
        if now - self._last_printed >= _SECONDS_BETWEEN_LINES and done < steps:
            self._last_printed = now
            left = (now - self._first) / (done - 1) * (steps - done)
            click.echo(f"{done}/{steps} steps, about {left:.0f} s left", err=True)


def _print(found: ModelComparison) -> None:
    from torchstone.reports.console import make_console
    from torchstone.reports.safe_text import one_line

    for problem in found.problems:
        click.echo(f"warning: {one_line(f'{problem.where}: {problem.reason}', limit=1000)}", err=True)
    console = make_console(sys.stdout)
    _print_operators(found, console)
    if found.steps:
        _print_differences(found, console)
        _print_losses(found, console)
    if found.times is not None:
        console.print(_times(found.times), soft_wrap=True)
    console.print(one_line(_closing_line(found), limit=2000), soft_wrap=True, markup=False)


def _print_operators(found: ModelComparison, console: Console) -> None:
    from torchstone.reports.console import make_table, print_table

    table = make_table(console, "Operators", ("operator", "kernel", "calls", "refused"))
    for use in found.operators:
        counts = ("–", "–") if found.failure and not use.calls else (str(use.calls), str(use.refused))
        table.add_row(use.operator, use.kernel, *counts)
    print_table(console, table)
    console.print()


def _print_differences(found: ModelComparison, console: Console) -> None:
    from torchstone.reports.console import make_table, print_table

    columns = ("compared", "farthest", "difference", "floor", "times floor", "verdict")
    table = make_table(console, "Differences", columns)
    for item in found.differences:
        verdict = "agrees" if item.agrees else "DISAGREES"
        numbers = f"{item.difference:.1e}", f"{item.floor:.1e}", f"{item.times_floor:.1f}"
        table.add_row(item.what, item.worst, *numbers, verdict)
    print_table(console, table)
    console.print()


def _print_losses(found: ModelComparison, console: Console) -> None:
    from torchstone.reports.console import make_table, print_table

    table = make_table(console, "Losses", ("step", "loss without", "loss with kernels"))
    steps_shown = sorted({round(place * (found.steps - 1) / (_MOST_LOSS_ROWS - 1)) for place in range(_MOST_LOSS_ROWS)})
    for place in steps_shown:
        table.add_row(str(place + 1), f"{found.plain_losses[place]:.7g}", f"{found.kernels_losses[place]:.7g}")
    print_table(console, table)
    console.print()


def _times(times: Times) -> str:
    text = f"step: {1e3 * times.plain_seconds:.3g} ms without, {1e3 * times.kernels_seconds:.3g} ms with kernels"
    if times.speedup is None:
        return f"{text}; too few steps for a ratio"
    speedup = times.speedup
    return f"{text}: {speedup.ratio:.2f}x, 95 % interval {speedup.low:.2f} to {speedup.high:.2f} ({speedup.outcome})"


def _closing_line(found: ModelComparison) -> str:
    if found.failure:
        return f"does not agree: {found.failure}"
    from torchstone.reports.safe_text import counted

    replaced, calls = counted(len(found.operators), "operator"), sum(use.calls for use in found.operators)
    what = f"{counted(found.steps, 'step')}, {replaced} replaced, {counted(calls, 'call')}"
    return f"{'agrees' if found.agrees else 'does not agree'}: {what}"
