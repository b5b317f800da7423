"""What a suite is: one method. And a fake for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec

from torchstone.schema import Case, forward_operator, is_model

Mode = Literal["fwd", "bwd", "fwd+bwd"]


class CaseQuery(msgspec.Struct, frozen=True):
    """Which cases are wanted. A suite filters before it builds anything."""

    operators: tuple[str, ...] | None = None
    """Overload names (`aten.add.Tensor`, `add.Tensor`) or base names (`add`: every overload); None is all."""
    dtypes: tuple[str, ...] | None = None
    """torch dtype names; None is the suite's own choice."""
    device_type: str = "cpu"
    source: str | None = None
    """Where a suite that reads its cases from a file finds it: a path, or ``hf://…``; None is the suite's own."""
    largest: int | None = None
    """Only so many cases of each operator, those with the most bytes of arguments; None is all. For every suite."""
    sample: int | None = None
    """Only so many cases in all, every operator in turn; None is all. For every suite."""
    overhead_dominated: bool = False
    """Only calls that are known to take hardly longer than starting a kernel."""
    mode: Mode = "fwd"
    """Results, gradients, or both. For every suite, see `select_cases`."""
    expression: str | None = None
    """Only cases whose operator or label fits it, see `parse_expression`; None is all. For every suite."""
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
    """Where cases come from.

    A suite that knows its size without work may say so: ``known_size(query) -> SuiteSize | None``.
    """

    def cases(self, query: CaseQuery) -> Iterable[Case]:
        """The cases that fit the query, in a stable order.

        ``largest``, ``sample``, ``mode``, ``expression`` and ``keys`` are not its business, see `select_cases`.
        """
        ...


class ListedSuite:
    """A suite of given cases: the fake for tests, and the way to judge on cases made by hand."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = tuple(cases)

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        return (case for case in self._cases if selects(query, case.operator))


def selects(query: CaseQuery, operator: str) -> bool:
    """Whether the query asks for this operator."""
    return query.operators is None or any(names_operator(name, operator) for name in query.operators)


def names_operator(name: str, operator: str) -> bool:
    """Whether a name as users write it means this overload: exact, without the namespace, the base name, or the folder
    of a problem file (``level1``).
    """
    operator = forward_operator(operator)
    namespace, _, overload_name = operator.partition(".")
    base = overload_name.partition(".")[0]
    if is_model(operator) and base.startswith(f"{name}__"):
        return True
    return name in (operator, overload_name, base, f"{namespace}.{base}")
