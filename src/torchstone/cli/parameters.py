"""Option types that click lacks (comma lists, sizes, cases), and options that several commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.option_groups import OTHER, option

if TYPE_CHECKING:
    from torchstone.schema import Case

_BYTES_OF_UNIT = {
    "": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": 1 << 30, "gib": 1 << 30, "gb": 10**9, "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip


class NumberRange(click.FloatRange):
    """A range of numbers that refuses NaN. click only compares with the bounds, and accepts NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


def size_in_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Callback of an option: ``8GiB`` -> bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", value.lower())
    size = int(float(found.group(1)) * _BYTES_OF_UNIT.get(found.group(2), 0)) if found else 0
    if size < 1:
        raise click.BadParameter(
            f"'{value}' is not a size. Write it like 8GiB, 512MiB or 1073741824.", context, parameter
        )
    return size


def case_of(context: click.Context, parameter: click.Parameter, value: str | None) -> Case | None:
    """Callback of an option: a case from JSON, or from ``@FILE`` with JSON."""
    if value is None:
        return None
    import msgspec

    from torchstone.schema import Case, decode

    try:
        text = Path(value[1:]).read_text() if value.startswith("@") else value
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"'{value[1:]}' cannot be read: {error}.", context, parameter) from error
    try:
        return decode(text, Case)
    except msgspec.DecodeError as error:
        told = f"this is no case: {error}. 'torchstone fuzz' prints cases that can be given here."
        raise click.BadParameter(told, context, parameter) from error


def split_commas(values: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names in ``("add,sub", "relu")``; None if nothing was given."""
    names = tuple(name.strip() for value in values for name in value.split(","))
    if any(name == "" for name in names):
        raise click.UsageError(f"'{','.join(values)}' has an empty name. Write names separated by single commas.")
    return names or None


def report_options(group: str = OTHER) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds the options for the output of results: ``wide``, ``durations``, ``junit``."""
    wide = option("--wide", group=group, is_flag=True, help="All columns, even if the terminal is too narrow.")
    slowest = option(
        "--durations",
        group=group,
        type=click.IntRange(min=1),
        metavar="N",
        help="Also the N slowest cases, stage by stage.",
    )
    junit = option(
        "--junit",
        group=group,
        callback=_writable_file,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Also write JUnit XML, for CI servers.",
    )
    return lambda command: wide(slowest(junit(command)))


def timeout_options(group: str = OTHER) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds the limits of the stages: ``load_timeout`` to ``measure_timeout``, ``timeout_multiplier``."""
    seconds: Any = {"type": NumberRange(min=0, min_open=True), "group": group}
    load = option("--load-timeout", metavar="SECONDS", help="Limit for importing a kernel.", **seconds)
    first = option("--compile-timeout", metavar="SECONDS", help="Limit for a case's first call.", **seconds)
    check = option("--check-timeout", metavar="SECONDS", help="Limit for checking a case.", **seconds)
    measure = option("--measure-timeout", metavar="SECONDS", help="Limit for timing a case.", **seconds)
    factor = option("--timeout-multiplier", metavar="X", default=1.0, help="Multiplies all four limits.", **seconds)
    return lambda command: load(first(check(measure(factor(command)))))


def _writable_file(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Callback of an option: check that the file's folder exists. A long run must not fail when it writes the file."""
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(
            f"there is no folder '{value.parent}' to write into. Make it first.", context, parameter
        )
    return value


def case_options(group: str = OTHER) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds options to select cases: ``source``, ``largest``, ``sample``, ``overhead_dominated``."""
    source = option(
        "--source",
        "--alternative-torchbench-data-path",
        "source",
        metavar="PATH|hf://…",
        help="File of recorded calls, for suites that read one.",
        group=group,
    )
    largest = option(
        "--topn-inputs",
        "--topn",
        "largest",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the N cases of each operator with the most bytes.",
        group=group,
    )
    sample = option(
        "--sample",
        "sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only N cases, taken from every operator in turn.",
        group=group,
    )
    overhead = option(
        "--check-overhead-dominated-ops",
        "--overhead-dominated",
        "overhead_dominated",
        is_flag=True,
        help="Only calls that take about as long as a kernel launch.",
        group=group,
    )
    return lambda command: source(largest(sample(overhead(command))))
