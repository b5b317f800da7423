"""``torchstone list``: which names can be given to `run`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from torchstone.cli.parameters import case_options, split_commas


@click.command("list", short_help="List suites, backends, or the operators of a suite.")
@click.argument("kind", type=click.Choice(["suites", "backends", "operators"]))
@click.option("--suite", default="smoke", show_default=True, help="Whose operators.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; the suite's choice otherwise.")
@click.option("--device", "device_type", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@case_options()
def names(kind: str, suite: str, **chosen: Any) -> int:
    """List suites, backends, or the operators of a suite with their numbers of cases."""
    from torchstone import registry

    if kind == "operators":
        _list_operators(suite, chosen)
    else:
        for name in (registry.suites if kind == "suites" else registry.backends).names():
            click.echo(name)
    return 0


def _list_operators(suite: str, chosen: dict[str, Any]) -> None:
    from torchstone import registry
    from torchstone.runs import canonical_dtypes
    from torchstone.suites import CaseQuery, left_out, select_cases

    wanted = split_commas(chosen.pop("dtypes"))
    dtypes = None if wanted is None else canonical_dtypes(wanted)
    made, query = registry.suites.factory(suite)(), CaseQuery(dtypes=dtypes, **chosen)
    cases = select_cases(suite, made, query)
    total = Counter(case.operator for case in cases)
    timed = Counter(case.operator for case in cases if case.timed)
    for operator in sorted(total):
        click.echo(f"{operator}\t{total[operator]} cases\t{timed[operator]} timed")
    for reason, count in left_out(made, query).items():
        click.echo(f"left out: {reason}\t{count}", err=True)
