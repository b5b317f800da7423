"""Input plans (special values written into test inputs): NaN or infinities, where operators define the answer.

Autograd does not define gradients at NaN or infinity, and most kernels do not treat them as torch does:
``where(x > 0, x, 0)`` gives 0 for NaN. So these plans apply only to:

- operators that exist for such values (``isnan``), and cases whose recipes contain them: NaN, and infinities;
- operators that return the other argument where one is NaN (``fmax``): NaN;
- operators that only move or compare values: infinities.

:mod:`~torchstone.judging.plans.nonfinite_pointwise_inputs` has the plan for all pointwise operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from torchstone import operators
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import OPERATOR_ERRORS, ResultPosition
from torchstone.judging.plans.base import Plan, Policy, When, is_pointwise
from torchstone.judging.plans.case_facts import CaseFacts, is_normal, is_unbounded
from torchstone.judging.plans.plan_randomness import PlanRng, plant_into
from torchstone.judging.plans.simple_values import may_take_from

_EVERY = 64
"""One element in this many becomes NaN or infinite: if elements are added up, one spoils a whole sum."""
_EVERY_MISSING = 8
"""The same for operators that return the other argument."""
_INFINITIES = (math.inf, -math.inf)


class Nan(Plan):
    """NaN, for operators that exist for it and cases whose recipes contain it. No other check of variants has NaN."""

    name = "nan"
    phrase = "inputs included NaN"
    policy = Policy(When.EVERY_VARIANT, may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.has_unbounded and _is_about_non_finite(facts)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        _plant(call, rng, (math.nan,))


class Infinities(Plan):
    """Infinities, for the same operators and cases."""

    name = "infinities"
    phrase = "inputs included inf and -inf"
    policy = Policy(When.EVERY_VARIANT, may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.has_unbounded and _is_about_non_finite(facts)

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Elements for which torch gives NaN: for an infinity, another formula may give the limit."""
        return torch.isnan(native)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        _plant(call, rng, _INFINITIES)


class CarriedInfinities(Plan):
    """Infinities, for operators that move or compare values: to these they are values like any other.

    A kernel that multiplies by a mask to choose between values is wrong for them.
    """

    name = "carried"
    phrase = "inputs included inf and -inf"
    policy = Policy()

    def applies(self, facts: CaseFacts) -> bool:
        return facts.has_unbounded and _moves_or_compares(facts) and not _is_about_non_finite(facts)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        _plant(call, rng, _INFINITIES)
        if not rng.distinct:
            _share_infinities(call)


class MissingValues(Plan):
    """NaN in both arguments, for operators that then return the other one. If both are NaN, any result is accepted."""

    name = "missing"
    phrase = "inputs included NaN"
    policy = Policy(When.EVERY_CASE)

    def applies(self, facts: CaseFacts) -> bool:
        two = facts.has_unbounded and len(facts.recipes) == 2 and all(map(is_normal, facts.recipes))
        return two and _returns_the_other(facts.case.operator)

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        return ~torch.isfinite(native)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if tensor.view.numel():
                plant_into(tensor, rng, lambda _rng, _tensor, count: torch.full((count,), math.nan), _EVERY_MISSING)


def _is_about_non_finite(facts: CaseFacts) -> bool:
    """Whether the operator exists for NaN or infinities, or a recipe of the case contains them."""
    return facts.traits.about_non_finite or any(getattr(each.fill, "specials", False) for each in facts.filled)


def _moves_or_compares(facts: CaseFacts) -> bool:
    """Whether torch's operator only moves values, or compares elements and returns booleans."""
    if facts.like is None:
        return False
    pointwise = is_pointwise(facts.like.call.case)
    compares = pointwise and all(dtype is torch.bool for dtype in facts.result_dtypes)
    return compares or facts.like.batch.reference.only_moves(facts.like.call)


def _plant(call: DrawnCall, rng: PlanRng, values_to_plant: Sequence[float]) -> None:
    """Write into every tensor of a pointwise operator; else into one tensor, since one value spoils many results."""
    tensors = [tensor for tensor in call.tensors if tensor.view.numel() and is_unbounded(tensor.recipe)]
    if not is_pointwise(call.case):
        tensors = [rng.structure.choice(tensors)]
    for tensor in tensors:
        plant_into(tensor, rng, lambda rng, _, count: rng.chosen(values_to_plant, count), _EVERY)


def _share_infinities(call: DrawnCall) -> None:
    """Copy the infinities of one tensor to another of the same recipe, so that infinities are compared."""
    for one, other in itertools.combinations(call.tensors, 2):
        if may_take_from(one, other) and one.view.numel():
            values = other.view.expand(one.view.shape)
            one.view.copy_(torch.where(torch.isinf(values), values, one.view))


@cache
def _returns_the_other(operator: str) -> bool:
    """Whether the operator returns 1 for NaN and 1, in either order."""
    missing, number = torch.tensor([math.nan]), torch.tensor([1.0])
    if not operators.traits(operator).pointwise:
        return False
    called = operators.resolve(operator)
    try:
        return all(_is_one(called(*pair)) for pair in ((missing, number), (number, missing)))
    except (*OPERATOR_ERRORS, TypeError):
        return False


def _is_one(found: Any) -> bool:
    return isinstance(found, torch.Tensor) and found.is_floating_point() and found.tolist() == [1.0]
