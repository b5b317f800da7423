"""Kinds of option values that click does not know: comma lists and sizes. And options that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

_UNITS = {
    "": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": 1 << 30, "gib": 1 << 30, "gb": 10**9, "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip


def size_in_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``8GiB`` -> bytes; an option's callback."""
    if value is None:
        return None
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", value.lower())
    size = int(float(found.group(1)) * _UNITS.get(found.group(2), 0)) if found else 0
    if size < 1:
        raise click.BadParameter(f"'{value}' is no size. Write it like 8GiB, 512MiB or 1073741824.", context, parameter)
    return size


def split_commas(values: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names in ``("add,sub", "relu")``; None if nothing was given."""
    names = tuple(name.strip() for value in values for name in value.split(","))
    if any(name == "" for name in names):
        raise click.UsageError(f"'{','.join(values)}' has an empty name. Write names separated by single commas.")
    return names or None


def case_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose among a suite's cases: ``source``, ``largest``, ``overhead_dominated``."""
    source = click.option(
        "--source",
        "--alternative-torchbench-data-path",
        "source",
        metavar="PATH|hf://…",
        help="File of recorded calls, for suites that read one.",
    )
    largest = click.option(
        "--topn-inputs",
        "--topn",
        "largest",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the N cases of each operator with the most bytes.",
    )
    overhead = click.option(
        "--check-overhead-dominated-ops",
        "--overhead-dominated",
        "overhead_dominated",
        is_flag=True,
        help="Only calls known to take hardly longer than starting a kernel.",
    )
    return source(largest(overhead(command)))
