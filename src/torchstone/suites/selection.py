"""Selects cases of any suite by the options that all suites share: filter, largest, sample, gradients, case keys.

An option that a suite cannot use is refused. Separate from the suites, so that no suite, also of another package, can
ignore an option.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from torchstone.errors import UsageError
from torchstone.schema import Case, content_key, gradient_operator, tensors_of
from torchstone.suites.base import CaseQuery, Suite
from torchstone.suites.case_filter import parse_expression

_ELEMENT_BYTES = {"64": 8, "32": 4, "16": 2}
_OPTIONS = {"source": "--source", "overhead_dominated": "--overhead-dominated"}
"""Parts of a query that only some suites use (their attribute ``uses``), and the command-line options for them."""


def select_cases(name: str, suite: Suite, query: CaseQuery) -> tuple[Case, ...]:
    """The cases of the suite of that name that fit the query."""
    refuse_unused(name, suite, query)
    fits = _matcher(query.expression)
    cases = tuple(case for case in suite.cases(query) if fits(case) or (query.mode != "fwd" and fits(_gradient(case))))
    if query.largest is not None:
        cases = keep_largest(cases, query.largest)
    if query.sample is not None:
        cases = keep_sample(cases, query.sample)
    if query.mode != "fwd":
        cases = (*(cases if query.mode == "fwd+bwd" else ()), *_gradients(cases)[0])
    keys = None if query.keys is None else frozenset(query.keys)
    return tuple(case for case in cases if fits(case) and (keys is None or case.key in keys))


def _matcher(expression: str | None) -> Callable[[Case], bool]:
    """A function that tells whether the operator or label of a case matches the expression."""
    if expression is None:
        return lambda case: True
    matches = parse_expression(expression)
    return lambda case: matches(f"{case.operator} {case.label}")


def _gradient(case: Case) -> Case:
    """The case under the name of its gradient, to which an expression may refer before gradients are made."""
    return msgspec.structs.replace(case, operator=gradient_operator(case.operator))


def operators_of(suite: Suite, query: CaseQuery) -> tuple[str, ...]:
    """The operators of the suite, sorted. If listing them requires generating cases: those of the query's cases."""
    known = known_operators(suite, query)
    return tuple(sorted({case.operator for case in suite.cases(query)} if known is None else known))


def left_out(suite: Suite, query: CaseQuery) -> Mapping[str, int]:
    """How many entries of its source the suite left out, by reason; most suites leave out nothing."""
    method = getattr(suite, "left_out", None)
    found = dict(method(query)) if callable(method) else {}
    if query.mode != "fwd":
        without = _gradients(select_cases("", suite, msgspec.structs.replace(query, mode="fwd")))[1]
        found |= {f"no gradient: {reason}": count for reason, count in without.items()}
    return found


def known_operators(suite: Suite, query: CaseQuery) -> frozenset[str] | None:
    """Every operator that the suite has cases of; None if it would have to generate cases to list them.

    A suite that can list them has a method ``operators(query)``. The method uses the query's device, dtypes and source;
    some suites also use its operators.
    """
    method = getattr(suite, "operators", None)
    found = method(query) if callable(method) else None
    return None if found is None else frozenset(found)


def _gradients(cases: tuple[Case, ...]) -> tuple[tuple[Case, ...], dict[str, int]]:
    from torchstone.suites.gradient_cases import backward_cases  # asks torch

    return backward_cases(cases)


def keep_largest(cases: Iterable[Case], count: int) -> tuple[Case, ...]:
    """The ``count`` cases of each operator with the most bytes, in their original order. Ties keep the earlier."""
    listed = tuple(cases)
    places: dict[str, list[int]] = {}
    for place, case in enumerate(listed):
        places.setdefault(case.operator, []).append(place)
    kept = [
        place
        for of_one_operator in places.values()
        for place in heapq.nlargest(count, of_one_operator, key=lambda place: input_bytes(listed[place]))
    ]
    return tuple(listed[place] for place in sorted(kept))


def keep_sample(cases: Iterable[Case], count: int) -> tuple[Case, ...]:
    """This many cases, in their original order, taken from the operators in turn.

    Which cases of an operator are chosen depends on its cases alone. So the sample is the same everywhere, and a larger
    one contains a smaller one.
    """
    listed = tuple(cases)
    ranks: Counter[str] = Counter()
    turns: list[tuple[int, str, int]] = []
    for key, place in sorted((content_key("sample", case.key), place) for place, case in enumerate(listed)):
        turns.append((ranks[listed[place].operator], key, place))
        ranks[listed[place].operator] += 1
    return tuple(listed[place] for place in sorted(place for *_, place in sorted(turns)[:count]))


def input_bytes(case: Case) -> int:
    """About how many bytes a call of the case reads: the measure of its size."""
    return sum(math.prod(tensor.shape) * _bytes_of(tensor.dtype) for tensor in tensors_of(case))


def _bytes_of(dtype: str) -> int:
    """Bytes of one element, from the dtype's name, since torch is not imported here."""
    width = next((size for digits, size in _ELEMENT_BYTES.items() if digits in dtype), 1)
    return 16 if dtype == "complex128" else width


def refuse_unused(name: str, suite: Suite, query: CaseQuery) -> None:
    """Raise a `UsageError` for an option that the suite does not use."""
    used: Collection[str] = getattr(suite, "uses", ())
    for part, option in _OPTIONS.items():
        if getattr(query, part) not in (None, False) and part not in used:
            raise UsageError(f"suite '{name}' has no use for {option}. Leave it out, or choose another suite.")
