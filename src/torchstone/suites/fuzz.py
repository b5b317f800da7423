"""Edge cases made from an operator's schema: a stable set of them as a suite. The search is ``torchstone fuzz``.

Any overload of ATen that takes tensors, by its name; without names, the operators of the smoke suite. The set is the
same in every process and on every machine with the same torch, so that runs can be resumed and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchstone.errors import UsageError, unknown_name
from torchstone.schema import Case, tensors_of
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.smoke import TABLE

if TYPE_CHECKING:
    from torchstone.suites.forms import Operator

CASES_PER_OPERATOR = 30
_DRAWS = 240
"""Of which the most different are kept."""


class FuzzSuite:
    """Learns how the operators of a query can be called, and draws cases of each."""

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        """The cases that fit the query, grouped by operator."""
        for operator in learned_operators(query.operators, query.dtypes)[0]:
            yield from stable_cases(operator)

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """Overloads that no case could be made of, by reason."""
        return dict(Counter(learned_operators(query.operators, query.dtypes)[1].values()))


def learned_operators(
    names: Sequence[str] | None, dtypes: Sequence[str] | None
) -> tuple[tuple[Operator, ...], dict[str, str]]:
    """What the names mean, and why some overloads cannot be fuzzed. Raises if a name means nothing that can be."""
    from torchstone.suites.forms import Unfuzzable, learn

    found: list[Operator] = []
    refused: dict[str, str] = {}
    for name in names if names is not None else smoke_operators():
        overloads = overloads_of(name)
        before = len(found)
        for overload in overloads:
            try:
                found.append(learn(overload, dtypes))
            except Unfuzzable as reason:
                refused[overload] = str(reason)
        if len(found) == before:
            raise UsageError(f"no case can be made for operator '{name}': {refused[overloads[0]]}.")
    return tuple(dict.fromkeys(found)), refused


def smoke_operators() -> tuple[str, ...]:
    """What is fuzzed where nothing is named."""
    return tuple(dict.fromkeys(row.case.operator for row in TABLE))


def overloads_of(name: str) -> tuple[str, ...]:
    """The overloads that a name means, those that write their result into an argument left out."""
    import torch

    bare = name.removeprefix("aten.")
    base = bare.partition(".")[0]
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        raise unknown_name("operator", name, _near(base, dir(torch._C._VariableFunctions)))
    query = CaseQuery((name,))
    full = (f"aten.{base}.{overload}" for overload in packet.overloads())
    found = tuple(operator for operator in full if selects(query, operator))
    kept = tuple(operator for operator in found if not _writes_out(operator)) or found
    if not kept:
        raise unknown_name("operator", name, (f"{base}.{overload}" for overload in packet.overloads()))
    return kept


def _near(base: str, names: Iterable[str]) -> tuple[str, ...]:
    """ATen has thousands of names: those that could be meant."""
    import difflib

    return tuple(difflib.get_close_matches(base, [name for name in names if not name.startswith("_")], n=5))


def _writes_out(operator: str) -> bool:
    from torchstone import operators

    return any(argument.is_out for argument in operators.resolve(operator)._schema.arguments)


def stable_cases(operator: Operator, count: int = CASES_PER_OPERATOR) -> tuple[Case, ...]:
    """So many cases, as different as can be, the same every time."""
    import torch

    from torchstone.judging.jitter import is_valid
    from torchstone.suites.choices import SeededChoices
    from torchstone.suites.fitting import marked
    from torchstone.suites.forms import draw_case

    choices = SeededChoices(operator.name)
    drawn: dict[str, Case] = {}
    for seed in range(_DRAWS):
        case = draw_case(operator, operator.forms[seed % len(operator.forms)], choices)
        if case is not None and case.key not in drawn and is_valid(case, seed):
            drawn[case.key] = case
    return tuple(marked(case, torch.device("cpu")) for case in _most_different(list(drawn.values()), count))


def _most_different(cases: list[Case], count: int) -> list[Case]:
    """One after the other the case whose kinds have been seen the least; of equal ones the earlier."""
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
