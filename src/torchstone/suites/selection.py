"""From a query to cases, for any suite: what a suite has no use for is refused, and only the largest, or a
sample, are kept.

Separate from the suites, so that none of them, and none of another package, can ignore an option.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from torchstone.errors import UsageError
from torchstone.schema import Case, content_key, tensors_of
from torchstone.suites.base import CaseQuery, Suite

_ELEMENT_BYTES = {"64": 8, "32": 4, "16": 2}
_OPTIONS = {"source": "--source", "overhead_dominated": "--overhead-dominated"}
"""Parts of a query that a suite must say it uses, and the options that they come from."""


def select_cases(name: str, suite: Suite, query: CaseQuery) -> tuple[Case, ...]:
    """The cases of the suite of that name that fit the query."""
    _refuse_unused(name, suite, query)
    cases = tuple(suite.cases(query))
    if query.largest is not None:
        cases = keep_largest(cases, query.largest)
    if query.sample is not None:
        cases = keep_sample(cases, query.sample)
    return cases if query.mode == "fwd" else (*(cases if query.mode == "fwd+bwd" else ()), *_gradients(cases)[0])


def operators_of(suite: Suite, query: CaseQuery) -> tuple[str, ...]:
    """The operators that the query selects, sorted. A suite whose cases take long to make may know them without."""
    method = getattr(suite, "operators", None)
    return tuple(sorted(method(query) if callable(method) else {case.operator for case in suite.cases(query)}))


def left_out(suite: Suite, query: CaseQuery) -> Mapping[str, int]:
    """How many entries of its source the suite made no case of, by reason; most suites have nothing to leave out."""
    method = getattr(suite, "left_out", None)
    found = dict(method(query)) if callable(method) else {}
    if query.mode != "fwd":
        without = _gradients(select_cases("", suite, msgspec.structs.replace(query, mode="fwd")))[1]
        found |= {f"no gradient: {reason}": count for reason, count in without.items()}
    return found


def _gradients(cases: tuple[Case, ...]) -> tuple[tuple[Case, ...], dict[str, int]]:
    from torchstone.suites.backward import backward_cases  # asks torch

    return backward_cases(cases)


def keep_largest(cases: Iterable[Case], count: int) -> tuple[Case, ...]:
    """Of each operator the ``count`` cases with the most bytes, in their old order; of equal ones the earlier."""
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
    """So many cases, in their old order: every operator in turn gives one until there are enough.

    Which ones an operator gives depends on what they are alone, so that the sample is the same everywhere and a larger
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
    """About how much a call reads: what makes one case larger than another."""
    return sum(math.prod(tensor.shape) * _bytes_of(tensor.dtype) for tensor in tensors_of(case))


def _bytes_of(dtype: str) -> int:
    """By its name, since torch is not imported here."""
    width = next((size for digits, size in _ELEMENT_BYTES.items() if digits in dtype), 1)
    return 16 if dtype == "complex128" else width


def _refuse_unused(name: str, suite: Suite, query: CaseQuery) -> None:
    used: Collection[str] = getattr(suite, "uses", ())
    for part, option in _OPTIONS.items():
        if getattr(query, part) not in (None, False) and part not in used:
            raise UsageError(f"suite '{name}' has no use for {option}. Leave it out, or choose another suite.")
