"""Suites `torchbench` and `torchbench-all`: recorded calls of real models, with operators, shapes, dtypes and counts.

The calls are the rows of a file (:mod:`torchstone.suites.recorded_call_files`). Their values come from tables of valid
values by operator (:mod:`torchstone.suites.valid_values`). Every row becomes a case, or is left out and counted by
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.schema import Case, content_key, tensors_of
from torchstone.suites.base import CaseQuery, names_operator, selects
from torchstone.suites.device_only_operators import reason_against
from torchstone.suites.fixed_size_layouts import mark_other_layouts
from torchstone.suites.recorded_call_files import DEFAULT_SOURCE, Recorded, read_source
from torchstone.suites.selection import input_bytes
from torchstone.suites.uninformative_calls import excuse
from torchstone.suites.valid_values import fills_for

TIMED_BYTES = 1 << 20
"""Bytes of all arguments below which a call is not timed. Most smaller calls of the dataset took less than three
launches of an empty kernel (H100). Their time is that of launching, not of the kernel."""
SAME_CALL = "the same call as an earlier row, which counts for both"
SYNTHETIC = "synthetic: not recorded from a model"
UNEXPLAINED = "left out by the source, without a reason"
NOT_DOMINATED = "not dominated by overhead"
_MAX_SHOWN_MODELS = 3


class Selection(NamedTuple):
    """The cases that a query selects from a source, and how many rows are left out, by reason."""

    cases: tuple[Case, ...]
    left_out: Counter[str]


class TraceSuite:
    """Operator calls recorded from models in training, those that the dataset counts as its benchmark."""

    name: ClassVar[str] = "torchbench"
    whole: ClassVar[bool] = False
    """Whether rows that the source marks as excluded from its benchmark become cases too."""
    uses: ClassVar[frozenset[str]] = frozenset({"source", "overhead_dominated"})

    def __init__(self) -> None:
        self._sources: dict[str, list[Recorded]] = {}
        self._selections: dict[CaseQuery, Selection] = {}

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, in the order of the source. With dtypes: cases with a tensor of one of them."""
        found = tuple(case for case in self._select(query).cases if _has_dtype(case, query.dtypes))
        if query.dtypes is not None and not found:
            raise UsageError(
                f"suite '{self.name}' has no recorded call in {', '.join(query.dtypes)}. Leave the dtype out."
            )
        return found

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many rows of the requested operators are left out, by reason, without those that the query excludes."""
        return dict(self._select(query).left_out.most_common())

    def _select(self, query: CaseQuery) -> Selection:
        """The selection for a query, kept for a second call. Rows are chosen before their arguments are parsed."""
        if query not in self._selections:
            rows, reasons = self._choose(query)
            cases, same = _merged(self._case(recorded, query) for recorded in rows)
            if same:
                reasons[SAME_CALL] = same
            self._selections = {query: Selection(cases, reasons)}
        return self._selections[query]

    def _choose(self, query: CaseQuery) -> tuple[list[Recorded], Counter[str]]:
        rows: list[Recorded] = []
        reasons: Counter[str] = Counter()
        everything = self._recorded(query)
        _require_known_operators(query, everything, self.name)
        for recorded in everything:
            if not selects(query, recorded.operator):
                continue
            reason = self._reason_against(recorded, query)
            if reason:
                reasons[reason] += 1
            elif not query.overhead_dominated or _is_overhead_dominated(recorded):
                rows.append(recorded)
        self._require_some_of_each(query, rows, everything)
        return rows, reasons

    def _require_some_of_each(self, query: CaseQuery, rows: list[Recorded], everything: list[Recorded]) -> None:
        """Raise if a requested operator was recorded but all its rows are left out, with the reasons."""
        chosen = {recorded.operator for recorded in rows}
        for name in query.operators or ():
            if not any(names_operator(name, operator) for operator in chosen):
                own = (recorded for recorded in everything if names_operator(name, recorded.operator))
                reasons = Counter(self._reason_against(recorded, query) or NOT_DOMINATED for recorded in own)
                told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
                raise UsageError(f"suite '{self.name}' leaves out every recorded call of '{name}': {told}.")

    def _recorded(self, query: CaseQuery) -> list[Recorded]:
        source = query.source or DEFAULT_SOURCE
        if source not in self._sources:
            self._sources[source] = read_source(source)
        return self._sources[source]

    def _reason_against(self, recorded: Recorded, query: CaseQuery) -> str:
        row = recorded.row
        if not self.whole and not row.included_in_benchmark:
            return "; ".join(row.why_excluded or ()) or UNEXPLAINED
        if not self.whole and row.count == 0:
            return SYNTHETIC
        return reason_against(recorded.operator, query.device_type)

    def _case(self, recorded: Recorded, query: CaseQuery) -> Case:
        args, kwargs, jitter = fills_for(recorded.operator, recorded.call())
        case = Case(
            self.name, recorded.operator, args, kwargs, _tags(recorded), jitter=jitter, occurrences=recorded.row.count
        )
        dominated = recorded.row.is_overhead_dominated_op is True
        timed = query.overhead_dominated or (input_bytes(case) >= TIMED_BYTES and not dominated)
        return mark_other_layouts(msgspec.structs.replace(case, timed=timed, indistinct=excuse(case)))


class WholeTraceSuite(TraceSuite):
    """Every operator call of torchbench's dataset, also those outside of its benchmark."""

    name = "torchbench-all"
    whole = True


def _require_known_operators(query: CaseQuery, rows: list[Recorded], suite: str) -> None:
    known = {recorded.operator for recorded in rows}
    for name in query.operators or ():
        if not any(names_operator(name, operator) for operator in known):
            raise unknown_name("recorded operator", name, known, f"'torchstone list operators --suite {suite}'")


def _is_overhead_dominated(recorded: Recorded) -> bool:
    if recorded.row.is_overhead_dominated_op is None:
        raise UsageError(
            f"{recorded.place}: the row does not say whether this call is dominated by overhead "
            "(is_overhead_dominated_op). Leave out --overhead-dominated."
        )
    return recorded.row.is_overhead_dominated_op


def _tags(recorded: Recorded) -> tuple[str, ...]:
    row = recorded.row
    models = row.in_models or ()
    more = (f"and-{len(models) - _MAX_SHOWN_MODELS}-more-models",) if len(models) > _MAX_SHOWN_MODELS else ()
    tags = [*models[:_MAX_SHOWN_MODELS], *more]
    if row.count == 0:
        tags.append("synthetic")
    if row.is_overhead_dominated_op:
        tags.append("overhead-dominated")
    return tuple(tags)


def _merged(cases: Iterator[Case]) -> tuple[tuple[Case, ...], int]:
    """Each distinct call once, with the summed counts of its rows; and how many rows were merged into earlier ones."""
    found: dict[str, Case] = {}
    same = 0
    for case in cases:
        key = content_key(case.operator, case.args, case.kwargs)
        earlier = found.get(key)
        same += earlier is not None
        found[key] = case if earlier is None else _merged_pair(earlier, case)
    return tuple(found.values()), same


def _merged_pair(one: Case, other: Case) -> Case:
    return msgspec.structs.replace(
        one,
        tags=tuple(dict.fromkeys((*one.tags, *other.tags))),
        timed=one.timed or other.timed,
        occurrences=one.occurrences + other.occurrences,
    )


def _has_dtype(case: Case, dtypes: tuple[str, ...] | None) -> bool:
    return dtypes is None or any(tensor.dtype in dtypes for tensor in tensors_of(case))
