"""``torchstone pairs expect``: compares a run with the speedups that are expected on its hardware."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.parameters import NumberRange

if TYPE_CHECKING:
    from torchstone.harness.expected_speedups import Checked

_COLOURS = {"met": "green", "improved": "green", "regressed": "red", "new": "cyan"}


@click.command(short_help="Check a run against expected speedups, or update these.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--file", "path", type=click.Path(path_type=Path, dir_okay=False), default="expectations.json", show_default=True
)
@click.option("--update", "updating", is_flag=True, help="Write what is new, improved or regressed to the file.")
@click.option(
    "--regression-threshold",
    type=NumberRange(min=0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="A speedup lower by more than this is a regression.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def expect(run: Path, path: Path, updating: bool, regression_threshold: float, as_json: bool) -> int:
    """Check a run's speedups against those expected on its hardware. Exits 1 if one regressed and is not updated."""
    from torchstone.cli.pairs_show import read_report
    from torchstone.harness import expected_speedups as kept
    from torchstone.schema import encode

    _, report = read_report(run)
    before = kept.read_expectations(path)
    checked = kept.check_run(report, before, regression_threshold)
    if updating:
        kept.write_expectations(path, kept.update(report, before, checked))
    hardware = kept.hardware_of(report)
    if as_json:
        click.echo(encode({"file": str(path), "hardware": hardware, "updated": updating, "pairs": checked}))
    else:
        _print(checked, hardware, path, updating)
    return 1 if not updating and any(each.finding == "regressed" for each in checked) else 0


def _print(checked: tuple[Checked, ...], hardware: str, path: Path, updated: bool) -> None:
    from collections import Counter

    from rich.text import Text

    from torchstone.reports.console import make_console, make_table, print_table
    from torchstone.reports.safe_text import one_line, ratio

    console = make_console(sys.stdout)
    table = make_table(console, f"Expectations for {hardware}")
    table.add_column("pair", overflow="fold")
    for name in ("expected", "speedup"):
        table.add_column(name, justify="right")
    table.add_column("of expected")
    table.add_column("finding")
    for each in checked:
        found = each.ratio
        of_expected = "–" if found is None else f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
        told = f"{each.finding}: {each.reason}" if each.reason else each.finding
        table.add_row(
            Text(one_line(each.name)),
            ratio(each.expected),
            ratio(each.speedup),
            of_expected,
            Text(told, _COLOURS.get(each.finding, "default")),
        )
    print_table(console, table)
    console.print()
    counts = Counter(each.finding for each in checked)
    told = ", ".join(f"{count} {finding}" for finding, count in counts.items()) or "no pairs"
    more = " · written" if updated else " · accept with --update" if counts["new"] or counts["regressed"] else ""
    console.print(Text(f"{told} · {hardware} · {path}{more}", "bold"), soft_wrap=True)
