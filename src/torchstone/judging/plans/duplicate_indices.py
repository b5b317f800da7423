"""Input plan (special values written into test inputs): duplicate indices, where writes to one place are combined.

If the result of two writes to one element is not defined, indices are drawn without duplicates. But
``accumulate=True``, ``index_add`` and ``scatter_reduce`` combine all writes to an element: a kernel that reads, adds
and writes without atomics loses all but one.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in, unravelled

_EVERY = 2
"""One index in this many becomes a copy of another."""
_INDEX_ARGUMENTS = ("index", "indices")


class DuplicateIndices(Plan):
    """Half of the indices become copies of others. Index tensors of one shape change in the same elements."""

    name = "meeting"
    phrase = "some indices occurred more than once"
    policy = Policy(When.EVERY_CALL, Positions.IRRELEVANT, factorizations=True)

    def applies(self, facts: CaseFacts) -> bool:
        case = facts.case
        return bool(_index_positions(case)) and operators.accumulates(case.operator, case.args, case.kwargs)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        chosen: dict[torch.Size, tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}
        for place in _index_positions(call.case):
            target = elements(call.tensors[place])
            if target.shape not in chosen:
                count = count_of(target, _EVERY)
                sources = [
                    each.to(target.device) for each in unravelled(rng.below(target.numel(), count), target.shape)
                ]
                chosen[target.shape] = places_in(target, count, rng), tuple(sources)
            places, taken = chosen[target.shape]
            target[places] = target[taken]


def _index_positions(case: schema.Case) -> list[int]:
    """Positions of the tensors that hold several drawn indices."""
    named = enumerate(operators.named_tensors(case))
    return [place for place, (name, recipe) in named if name in _INDEX_ARGUMENTS and _is_drawn_index(recipe)]


def _is_drawn_index(recipe: schema.Tensor) -> bool:
    return (
        isinstance(recipe.fill, schema.Integers | schema.SortedIntegers)
        and recipe.dtype in ("int32", "int64")
        and math.prod(recipe.shape) > 1
        and not overlaps(recipe)
    )
