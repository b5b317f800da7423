"""``torchstone redteam``: judges known cheats and honest look-alikes, and shows which cheats this machine stops."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from torchstone.cli.name_lists import print_rows
from torchstone.cli.parameters import split_commas

if TYPE_CHECKING:
    from torchstone.redteam import FixtureResult

_COLUMNS = ("fixture", "kind", "case", "verdict", "expected", "status", "credit", "seconds")


@click.command(short_help="Attack this installation with known cheats and show what is stopped.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--only", multiple=True, metavar="IDS", help="Fixtures, comma separated; default: all of the device.")
@click.option(
    "--list", "as_list", is_flag=True, help="List the fixtures and run none; without --device those of every device."
)
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="How often to judge each.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def redteam(device: str, only: tuple[str, ...], as_list: bool, repeats: int, as_json: bool) -> int:
    """Judge a corpus of cheats and of honest look-alikes: which are stopped here, by what, and which are not.

    Exit code 0: every cheat was stopped or gained nothing, every honest kernel agrees. 1: some did not.
    """
    from torchstone.redteam import judge_corpus
    from torchstone.runs.devices import resolve_device

    if as_list:
        _list(None if device == "auto" else device.partition(":")[0], split_commas(only), as_json)
        return 0
    findings = list(judge_corpus(resolve_device(device), split_commas(only), repeats))
    code = 0 if all(finding.as_expected for finding in findings) else 1
    if as_json:
        from torchstone.schema import encode

        click.echo(encode({"exit_code": code, "findings": findings}).decode())
    else:
        _print(findings)
    return code


def _list(device: str | None, ids: tuple[str, ...] | None, as_json: bool) -> None:
    from torchstone.redteam import choose_fixtures
    from torchstone.schema import encode

    found = choose_fixtures(device, ids)
    if as_json:
        shown = ("id", "kind", "device", "title", "expected")
        rows = [{name: getattr(fixture, name) for name in shown} for fixture in found]
        click.echo(encode({"fixtures": rows}).decode())
    else:
        print_rows((fixture.id, fixture.kind, fixture.device, fixture.title) for fixture in found)


def _print(findings: list[FixtureResult]) -> None:
    from torchstone.reports.console import make_console, make_table, print_table
    from torchstone.reports.safe_text import ratio

    console = make_console(sys.stdout)
    table = make_table(console, "Fixtures", _COLUMNS)
    for item in findings:
        status = item.status if item.as_expected else item.status.upper()
        cells = item.fixture, item.kind, item.case, item.verdict, item.expected, status
        table.add_row(*cells, ratio(item.credit), f"{item.seconds:.1f}")
    print_table(console, table)
    console.print()
    for item in findings:
        if not item.as_expected:
            known = f" (known: {item.hole})" if item.hole else ""
            what = f"{item.fixture} on {item.case}: {item.status}{known}: {item.message}"
            console.print(what, soft_wrap=True, markup=False)
    counts = Counter(f"{item.kind}: {item.status}" for item in findings)
    console.print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())), soft_wrap=True)
