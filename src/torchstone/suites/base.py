"""Defines the interface of a suite (a source of test cases), the query for its cases, and a suite of given cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

import msgspec

from torchstone.schema import Case, forward_operator, is_model

Mode = Literal["fwd", "bwd", "fwd+bwd"]


class CaseQuery(msgspec.Struct, frozen=True):
    """Which cases are wanted. A suite applies it before it does any work on cases."""

    operators: tuple[str, ...] | None = None
    """Overload names (`aten.add.Tensor`, `add.Tensor`) or base names (`add`: every overload); None is all."""
    dtypes: tuple[str, ...] | None = None
    """torch dtype names; None is the suite's own choice."""
    device_type: str = "cpu"
    source: str | None = None
    """File or folder that the suite reads its cases from: a path, or ``hf://…``. None: the suite's own default."""
    largest: int | None = None
    """Keep this many cases of each operator, those with the most bytes of arguments. None: all. For every suite."""
    sample: int | None = None
    """Keep this many cases in total, taken from the operators in turn. None: all. For every suite."""
    overhead_dominated: bool = False
    """Only calls that are known to take hardly longer than a kernel launch."""
    mode: Mode = "fwd"
    """Cases of the operators, of their gradients, or of both. For every suite, see `select_cases`."""
    expression: str | None = None
    """Only cases whose operator or label matches, see `parse_expression`. None: all. For every suite."""
    keys: tuple[str, ...] | None = None
    """Only the cases with these keys; None is all. For every suite."""


class SuiteSize(NamedTuple):
    """How large a suite is."""

    operators: int
    cases: int


def size_of(operators: Iterable[str]) -> SuiteSize:
    """The size of a suite, from the operator of each of its cases."""
    listed = tuple(operators)
    return SuiteSize(len(set(listed)), len(listed))


class Suite(Protocol):
    """A source of test cases.

    A suite that knows its size without generating cases may have a method ``known_size(query) -> SuiteSize | None``.
    """

    def cases(self, query: CaseQuery) -> Iterable[Case]:
        """The cases that fit the query, in a stable order.

        The suite ignores ``largest``, ``sample``, ``mode``, ``expression`` and ``keys``: see `select_cases`.
        """
        ...


class Arrivals(Protocol):
    """Cases that take time to find. They are yielded one by one, so that judging starts before all are known.

    Such a suite has a method ``arriving(query, quiet) -> Arrivals``, and at most one case for each operator.
    """

    @property
    def ready(self) -> tuple[Case, ...]:
        """The cases that are known at once."""
        ...

    @property
    def awaited(self) -> tuple[str, ...]:
        """Operators whose case has not been found yet."""
        ...

    def __iter__(self) -> Iterator[tuple[str, Case | None]]:
        """The awaited operators with their cases, as these are found, in any order. None: the operator has no case."""
        ...

    def stop(self) -> None:
        """Stop finding cases; the iteration then ends soon. May be called from any thread."""
        ...

    def left_out(self) -> dict[str, int]:
        """How many operators were found to have no case so far, by reason."""
        ...


Quiet = Callable[[], AbstractContextManager[None]]
"""Makes a context in which no measurement runs on the device, for work that would disturb one."""


class ListedSuite:
    """A suite of given cases, for tests and for cases made by hand. It uses only the operators of a query."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = tuple(cases)

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        return (case for case in self._cases if selects(query, case.operator))


def selects(query: CaseQuery, operator: str) -> bool:
    """Whether the query asks for this operator."""
    return query.operators is None or any(names_operator(name, operator) for name in query.operators)


def names_operator(name: str, operator: str) -> bool:
    """Whether a name that a user wrote means this overload.

    It may be the full name, the name without namespace, or the base name. For a KernelBench problem it may also be the
    folder (``level1``), path or stem (``19_ReLU``) of its file.
    """
    operator = forward_operator(operator)
    namespace, _, overload_name = operator.partition(".")
    base = overload_name.partition(".")[0]
    if is_model(operator) and _names_problem(name, base):
        return True
    return name in (operator, overload_name, base, f"{namespace}.{base}")


def _names_problem(name: str, base: str) -> bool:
    """Whether a name means a problem's folder or file. An operator named ``p19_ReLU`` is the file ``19_ReLU``."""
    written = re.sub(r"\W", "_", name.removesuffix(".py").replace("/", "__"), flags=re.ASCII)
    own = base[1:] if re.match(r"p\d", base) else base
    return f"{own}__".startswith(f"{written}__") or own.endswith(f"__{written}") or base.startswith(f"{written}__")
