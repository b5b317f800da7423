"""``torchstone list``: which names can be given to `run`."""

from __future__ import annotations

from collections import Counter

import click


@click.command("list", short_help="List suites, backends, or the operators of a suite.")
@click.argument("kind", type=click.Choice(["suites", "backends", "operators"]))
@click.option("--suite", default="smoke", show_default=True, help="Whose operators.")
def names(kind: str, suite: str) -> int:
    """List suites, backends, or the operators of a suite with their numbers of cases."""
    from torchstone import registry

    if kind == "operators":
        _list_operators(suite)
    else:
        for name in (registry.suites if kind == "suites" else registry.backends).names():
            click.echo(name)
    return 0


def _list_operators(suite: str) -> None:
    from torchstone import registry
    from torchstone.suites import CaseQuery

    cases = tuple(registry.suites.factory(suite)().cases(CaseQuery()))
    total = Counter(case.operator for case in cases)
    timed = Counter(case.operator for case in cases if case.timed)
    for operator in sorted(total):
        click.echo(f"{operator}\t{total[operator]} cases\t{timed[operator]} timed")
