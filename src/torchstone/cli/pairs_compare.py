"""``torchstone pairs compare``: shows which pairs of benchmark files got slower or faster between two runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.parameters import NumberRange

if TYPE_CHECKING:
    from torchstone.harness.changes_between_runs import Estimate, PairChange, RunComparison

_COLOURS = {"slower": "red", "broke": "red", "faster": "green", "mended": "green", "same": "dim"}


@click.command(short_help="Show what got slower or faster between two runs.")
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@click.option(
    "--regression-threshold",
    type=NumberRange(min=0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Smaller changes do not count.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def compare(run_a: Path, run_b: Path, regression_threshold: float, as_json: bool) -> int:
    """Show what changed from RUN_A to RUN_B: folders, or ids of runs in artifacts/. Exits 1 if a pair got slower.

    A pair is slower if its optimized side takes longer and lost speedup against the baseline of its own run, both by
    their whole 95 % intervals, or if it fails now.
    """
    from torchstone.cli.pairs_show import read_report
    from torchstone.harness.changes_between_runs import compare_runs
    from torchstone.schema import encode

    (_, before), (_, after) = read_report(run_a), read_report(run_b)
    found = compare_runs(before, after, regression_threshold)
    if as_json:
        click.echo(encode(found))
    else:
        _print(found)
    return 1 if found.worse else 0


def _print(found: RunComparison) -> None:
    from rich.text import Text

    from torchstone.harness.table_cells import milliseconds
    from torchstone.reports.console import make_console, make_table, print_table
    from torchstone.reports.safe_text import one_line, ratio

    console = make_console(sys.stdout)
    table = make_table(console, f"{found.before} -> {found.after}")
    table.add_column("pair", overflow="fold")
    for name in ("optimized ms before", "after", "time ratio", "speedup before", "after", "speedup ratio"):
        table.add_column(name, justify="right")
    table.add_column("change")
    for pair in found.pairs:
        times = (milliseconds(pair.before_ms), milliseconds(pair.after_ms), _shown(pair.time_ratio))
        speedups = (ratio(pair.before_speedup), ratio(pair.after_speedup), _shown(pair.speedup_ratio))
        change = Text(_change(pair), _COLOURS.get(pair.change, "default"))
        table.add_row(Text(one_line(pair.name)), *times, *speedups, change)
    print_table(console, table)
    console.print()
    for title, names in (("only in the first", found.only_before), ("only in the second", found.only_after)):
        if names:
            console.print(Text(f"{title}: {one_line(', '.join(names), limit=2000)}"), soft_wrap=True)
    if found.manifest_difference:
        console.print("circumstances that differ:")
    for field, (old, new) in found.manifest_difference.items():
        console.print(Text("  " + one_line(f"{field}: {old} -> {new}", limit=1000)), soft_wrap=True)
    console.print(Text(_closing(found), "bold"), soft_wrap=True)


def _shown(found: Estimate | None) -> str:
    return "–" if found is None else f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"


def _change(pair: PairChange) -> str:
    return f"{pair.change}, files changed" if pair.files_changed else pair.change


def _closing(found: RunComparison) -> str:
    from collections import Counter

    counts = Counter(pair.change for pair in found.pairs)
    told = ", ".join(f"{count} {change}" for change, count in counts.items()) or "none"
    return f"{len(found.pairs)} pairs in both runs: {told} (threshold {found.threshold_pct:g} %)"
