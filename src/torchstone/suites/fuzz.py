"""Suite `fuzz`: a fixed set of edge cases generated from an operator's schema. ``torchstone fuzz`` searches for more.

Any overload of ATen that takes tensors, by its name; without names, the operators of the smoke suite. The set is the
same in every process and on every machine with the same torch, so that runs can be resumed and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.schema import Case, tensors_of
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.case_cache import Progress
from torchstone.suites.smoke import TABLE

if TYPE_CHECKING:
    from torchstone.suites.learned_call_forms import Operator
    from torchstone.suites.torch_probe import TorchProbe

Refused = Mapping[str, str]
"""Overload -> why no case can be made of it."""

CASES_PER_OPERATOR = 30
_DRAWS = 120
"""Cases that are drawn for each operator. The most different of them are kept."""


class FuzzSuite:
    """Edge cases generated from the schemas of operators: --ops NAMES, otherwise those of smoke.

    Learns how the operators of a query can be called, and draws cases of each.
    """

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None
        self._known: dict[CaseQuery, tuple[tuple[Case, ...], Refused]] = {}

    def report_progress_to(self, progress: Progress) -> None:
        """Set the function that receives the progress."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, grouped by operator."""
        return self._made(query)[0]

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many overloads have no case, by reason."""
        return dict(Counter(self._made(query)[1].values()))

    def _made(self, query: CaseQuery) -> tuple[tuple[Case, ...], Refused]:
        """The cases of the query's operators and dtypes, made once. Other parts of the query are ignored."""
        query = CaseQuery(query.operators, query.dtypes)
        if query not in self._known:
            self._known[query] = self._make(query)
        return self._known[query]

    def _make(self, query: CaseQuery) -> tuple[tuple[Case, ...], Refused]:
        from torchstone.suites.torch_probe import TorchProbe

        with TorchProbe() as probe:
            operators, refused = learned_operators(query.operators, query.dtypes, probe, self._progress)
            return tuple(case for operator in operators for case in stable_cases(operator, probe)), refused


def learned_operators(
    names: Sequence[str] | None, dtypes: Sequence[str] | None, probe: TorchProbe, progress: Progress
) -> tuple[tuple[Operator, ...], Refused]:
    """The operators that the names mean, and why others cannot be fuzzed.

    Raises a `UsageError` for a name that means no operator that can be fuzzed.
    """
    from torchstone.suites.learned_call_forms import Unfuzzable, learn

    wanted = {name: overloads_of(name) for name in (smoke_operators() if names is None else names)}
    found: dict[str, Operator] = {}
    refused: dict[str, str] = {}
    for done, (name, overloads) in enumerate(wanted.items(), 1):
        for overload in overloads:
            try:
                found[overload] = learn(overload, probe, dtypes)
            except Unfuzzable as reason:
                refused[overload] = str(reason)
        if found.keys().isdisjoint(overloads):
            raise UsageError(f"no case can be made for operator '{name}': {refused[overloads[0]]}.")
        progress(done, len(wanted), "operators to fuzz")
    return tuple(found.values()), refused


def smoke_operators() -> tuple[str, ...]:
    """The operators that are fuzzed if none is named: those of the smoke suite."""
    return tuple(dict.fromkeys(row.case.operator for row in TABLE))


def overloads_of(name: str) -> tuple[str, ...]:
    """The overloads that a name means. Those without tensors, or with ``out=``, count only if there are no others."""
    import torch

    bare = name.removeprefix("aten.")
    base = bare.partition(".")[0]
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        raise unknown_name("operator of ATen", name, _names_in_aten())
    query = CaseQuery((name,))
    full = (f"aten.{base}.{overload}" for overload in packet.overloads())
    found = tuple(operator for operator in full if selects(query, operator))
    kept = tuple(operator for operator in found if _is_usual(operator)) or found
    if not kept:
        raise unknown_name("operator", name, (f"{base}.{overload}" for overload in packet.overloads()))
    return kept


def _names_in_aten() -> Iterable[str]:
    """The base name of every operator that ATen has."""
    import torch

    every: list[str] = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("aten::").partition(".")[0] for name in every if name.startswith("aten::")}


def _is_usual(operator: str) -> bool:
    from torchstone import operators

    arguments = operators.resolve(operator)._schema.arguments
    return any("Tensor" in str(item.type) for item in arguments) and not any(item.is_out for item in arguments)


def stable_cases(operator: Operator, probe: TorchProbe, count: int = CASES_PER_OPERATOR) -> tuple[Case, ...]:
    """This many cases, as different as possible, the same every time."""
    from torchstone.suites.learned_call_forms import draw_case
    from torchstone.suites.random_choices import SeededChoices

    choices = SeededChoices(operator.name)
    drawn: dict[str, Case] = {}
    for seed in range(_DRAWS):
        case = draw_case(operator, operator.forms[seed % len(operator.forms)], choices)
        if case is not None and case.key not in drawn and probe.takes(case, seed):
            drawn[case.key] = case
    kept = _most_different(list(drawn.values()), count)
    return tuple(msgspec.structs.replace(case, indistinct=probe.excuse(case)) for case in kept)


def _most_different(cases: list[Case], count: int) -> list[Case]:
    """Choose cases one by one: always the one whose layouts, dtypes, rank and tags were chosen least so far."""
    seen: Counter[str] = Counter()
    kept: list[Case] = []
    left = [(case, _kinds(case)) for case in cases]
    while left and len(kept) < count:
        chosen = min(left, key=lambda item: sum(seen[kind] for kind in item[1]) / len(item[1]))
        left.remove(chosen)
        kept.append(chosen[0])
        seen.update(chosen[1])
    return kept


def _kinds(case: Case) -> tuple[str, ...]:
    tensors = tensors_of(case)
    layout = "+".join(case.tags)
    return (layout, *dict.fromkeys(tensor.dtype for tensor in tensors), f"rank {len(tensors[0].shape)}", *case.tags)
