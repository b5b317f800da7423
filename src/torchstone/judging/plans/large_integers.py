"""Input plan (special values written into test inputs): integers up to the limits of their dtype, except indices.

Suites draw integers near 0, as most callers have them. So a kernel that computes in fewer bits, or in float32, would
agree. torch wraps around on overflow, also in sums and products. The float64 evaluation keeps integer dtypes, so it
wraps around as well. Arguments that may be indices get no such values.
"""

from __future__ import annotations

import itertools

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy
from torchstone.judging.plans.case_facts import INTEGERS, CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, place_extremes, places_in
from torchstone.operators.traits import may_be_index

_EVERY = 4
"""One element in this many becomes a large integer, unless all do."""
_NEAR_EVERY = 8
"""One element in this many becomes nearly equal to the other tensor's."""
_EDGES = tuple(
    sign * ((1 << bits) + difference)
    for bits in (7, 8, 15, 16, 24, 31, 32, 53)
    for difference in (-1, 0, 1)
    for sign in (1, -1)
)
"""Integers next to the limits of narrower integer or floating-point dtypes."""
_SORTED = "sorted_sequence"
"""Part of the name of an argument that must stay sorted."""


class LargeIntegers(Plan):
    """Large integers in some elements or in all; of two tensors of one shape, some equal or nearly equal elements."""

    name = "wide"
    phrase = "inputs included large integers, up to the limits of the dtype"
    policy = Policy(factorizations=True)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.steps_by_value and bool(_integer_positions(facts.case))

    def is_safe_on_gpu(self, facts: CaseFacts) -> bool:
        return not operators.traits(facts.whole_case.operator).has_index_arguments

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        chosen = [call.tensors[place] for place in _integer_positions(call.case)]
        tensors = [tensor for tensor in chosen if tensor.view.numel()]
        everywhere = rng.structure.random() < 0.5
        for tensor in tensors:
            target = elements(tensor)
            count = target.numel() if everywhere else count_of(target, _EVERY)
            target[places_in(target, count, rng)] = _large_integers(rng, target.dtype, count).to(target.device)
            place_extremes(target, torch.tensor(_dtype_limits(rng, target.dtype)), rng)
        for one, other in itertools.combinations([] if _divides(rng) else tensors, 2):
            _bring_near(one, other, rng)


def _integer_positions(case: schema.Case) -> list[int]:
    """Positions of the case's tensors that hold integers, but neither indices nor counts of steps.

    The names of the arguments tell. Integers from a range with negative numbers are no indices, whatever the name.
    """
    counting = operators.traits(case.operator).step_arguments
    return [
        place
        for place, (name, recipe) in enumerate(operators.named_tensors(case))
        if name not in counting and _is_plain_integer(recipe, may_be_index=may_be_index(name) or _SORTED in name)
    ]


def _is_plain_integer(recipe: schema.Tensor, *, may_be_index: bool) -> bool:
    return (
        isinstance(recipe.fill, schema.Integers)
        and (recipe.fill.low < 0 or not may_be_index)
        and operators.torch_dtype(recipe.dtype) in INTEGERS
    )


def _large_integers(rng: PlanRng, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Large integers: half of them random, of any number of bits, half next to the limit of a narrower dtype."""
    limits = torch.iinfo(dtype)
    random_integers = torch.randint(0, 1 << 62, (count,), generator=rng.values) >> rng.below(62, count)
    random_integers = ((random_integers >> (64 - limits.bits)) | (1 if _divides(rng) else 0)) * rng.signs(count).long()
    edges = torch.tensor([edge for edge in _EDGES if limits.min < edge <= limits.max])
    return torch.where(rng.below(2, count) == 0, random_integers, edges[rng.below(len(edges), count)]).to(dtype)


def _dtype_limits(rng: PlanRng, dtype: torch.dtype) -> tuple[int, int]:
    limits = torch.iinfo(dtype)
    return limits.max, limits.min + (1 if _divides(rng) else 0)


def _divides(rng: PlanRng) -> bool:
    return operators.traits(rng.case.operator).divides


def _bring_near(one: DrawnTensor, other: DrawnTensor, rng: PlanRng) -> None:
    """Make some elements equal to the other tensor's, or one more or less: equal when rounded to float32 or float64."""
    if one.view.shape == other.view.shape and one.view.dtype == other.view.dtype and not overlaps(one.recipe):
        target = one.view if one.view.dim() else one.view.view(1)
        count = count_of(target, _NEAR_EVERY)
        places = places_in(target, count, rng)
        difference = (rng.below(3, count) - 1).to(target.dtype).to(target.device)
        target[places] = other.view.reshape(target.shape)[places] + difference
