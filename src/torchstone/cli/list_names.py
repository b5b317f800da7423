"""``torchstone list``: lists suites and backends, or the operators of a suite with their numbers of cases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.name_lists import print_rows
from torchstone.cli.parameters import case_options, split_commas

if TYPE_CHECKING:
    from torchstone.suites import CaseQuery


@click.command("list", short_help="List suites, backends, or the operators of a suite.")
@click.argument("kind", type=click.Choice(["suites", "backends", "operators"]))
@click.option("--suite", default="smoke", show_default=True, help="Suite whose operators are listed.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; default: the suite's choice.")
@click.option("--device", "device_type", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@case_options()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def names(kind: str, suite: str, as_json: bool, **chosen: Any) -> int:
    """List suites, backends, or the operators of a suite with their numbers of cases."""
    query = _query(chosen)
    if kind == "operators":
        _list_operators(suite, query, as_json)
    else:
        rows = _suites(query) if kind == "suites" else _backends()
        if as_json:
            _print_json({kind: rows})
        else:
            print_rows((row["name"], row["description"], *_sizes(row)) for row in rows)
    return 0


def _query(chosen: dict[str, Any]) -> CaseQuery:
    from torchstone.runs import canonical_dtypes
    from torchstone.suites import CaseQuery

    wanted = split_commas(chosen.pop("dtypes"))
    return CaseQuery(dtypes=None if wanted is None else canonical_dtypes(wanted), **chosen)


def _suites(query: CaseQuery) -> list[dict[str, Any]]:
    from torchstone import registry

    rows = []
    for name in registry.suites.names():
        operators, cases = _known_size(name, query)
        described = {"name": name, "description": registry.suites.description(name)}
        rows.append({**described, "operators": operators, "cases": cases})
    return rows


def _known_size(name: str, query: CaseQuery) -> tuple[int | None, int | None]:
    """Operators and cases of the suite, if it knows their numbers without work; None: not known, or an error."""
    from torchstone import registry
    from torchstone.errors import TorchstoneError

    try:
        made = registry.suites.factory(name)
        size = made().known_size(query) if hasattr(made, "known_size") else None
    except TorchstoneError:
        return None, None
    return (None, None) if size is None else (size.operators, size.cases)


def _backends() -> list[dict[str, Any]]:
    from torchstone import registry

    rows = []
    for name in registry.backends.names():
        described = {"name": name, "description": registry.backends.description(name)}
        rows.append({**described, "operators": _operator_count(name)})
    return rows


def _operator_count(name: str) -> int | None:
    """The number of operators that the backend serves; None: its class does not say it, or an error."""
    from torchstone import registry
    from torchstone.errors import TorchstoneError

    try:
        return getattr(registry.backends.factory(name), "operator_count", None)
    except TorchstoneError:
        return None


def _sizes(row: dict[str, Any]) -> tuple[str, ...]:
    from torchstone.reports.safe_text import counted

    sizes = ((row[f"{noun}s"], noun) for noun in ("operator", "case") if f"{noun}s" in row)
    return tuple("" if number is None else counted(number, noun) for number, noun in sizes)


def _list_operators(suite: str, query: CaseQuery, as_json: bool) -> None:
    from torchstone import registry
    from torchstone.reports.safe_text import counted
    from torchstone.suites import left_out, select_cases

    made = registry.suites.factory(suite)()
    cases = select_cases(suite, made, query)
    total = Counter(case.operator for case in cases)
    timed = Counter(case.operator for case in cases if case.timed)
    reasons = left_out(made, query)
    if as_json:
        rows = [{"name": name, "cases": total[name], "timed": timed[name]} for name in sorted(total)]
        _print_json({"suite": suite, "operators": rows, "left_out": dict(reasons)})
        return
    print_rows((name, counted(total[name], "case"), f"{timed[name]} timed") for name in sorted(total))
    for reason, count in reasons.items():
        click.echo(f"left out: {reason}\t{count}", err=True)


def _print_json(content: dict[str, Any]) -> None:
    from torchstone.schema import encode

    click.echo(encode(content).decode())
