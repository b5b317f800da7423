"""Input plans (special values written into test inputs): one tensor is a copy of another, or nearly.

Drawn tensors differ everywhere. A kernel for ``equal`` or ``allclose`` that always returns False would agree, and so
would a distance that loses every digit where points coincide. For operators that return one boolean, there is a plan
with an exact copy and one with a single changed element. For other operators a few elements change, by a factor of
1 ± 1/2 to 1 ± 1/1000. With an argument ``equal_nan``, both tensors may get NaN and infinities instead.

Operators of a backward pass do not get these plans: their arguments are results of a forward pass.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in

_EVERY_CHANGED, _EVERY_NONFINITE = 64, 16
"""One element in this many changes, or becomes NaN or infinite."""
_CHANGED_EXPONENTS = (-10.0, -1.0)
"""Range of the exponents of two of a relative change."""
_SECOND_ARGUMENTS = ("other", "target", "x2")
"""Names of the argument that is compared with the first tensor."""
_EQUAL_NAN_ARGUMENT = "equal_nan"
_NONFINITE = (math.nan, math.inf, -math.inf)


class _Copied(Plan):
    """Base of the plans for operators that compare two tensors with equal recipes, as a whole or by rows."""

    policy = Policy(positions=Positions.EXCLUDED)

    def applies(self, facts: CaseFacts) -> bool:
        traits = facts.traits
        by_elements = traits.pointwise and not traits.returns_one_bool
        return not by_elements and not traits.is_backward and _pair(facts.case) is not None

    def when(self, facts: CaseFacts) -> When:
        """Every call, if the operator returns one boolean: hardly any drawn call gives True."""
        return When.EVERY_CALL if operators.traits(facts.whole_case.operator).returns_one_bool else self.policy.when

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        pair = _pair(call.case)
        if pair is None:
            return
        one, other = (call.tensors[place] for place in pair)
        other.view.copy_(one.view)
        changed = self._changed_count(operators.traits(call.case.operator).returns_one_bool, elements(other))
        if not changed:
            return
        if _has_equal_nan(call.case) and rng.structure.random() < 0.5:
            _plant_nonfinite(one, other, rng)
        else:
            _change_elements(other, changed, rng)

    def _changed_count(self, one_bool: bool, target: torch.Tensor) -> int:
        """How many elements of the copy change. ``one_bool``: the operator returns one boolean."""
        raise NotImplementedError


class Copied(_Copied):
    """An exact copy where the operator returns one boolean, else a copy with some elements changed."""

    name = "alike"
    phrase = "one input was a copy of another, or nearly"

    def _changed_count(self, one_bool: bool, target: torch.Tensor) -> int:
        return 0 if one_bool else count_of(target, _EVERY_CHANGED)


class NearlyCopied(_Copied):
    """A copy but for one element, where the operator returns one boolean."""

    name = "nearly alike"
    phrase = "one input was a copy of another but for one element, or for non-finite ones"

    def applies(self, facts: CaseFacts) -> bool:
        return facts.traits.returns_one_bool and super().applies(facts)

    def _changed_count(self, one_bool: bool, target: torch.Tensor) -> int:
        return 1 if one_bool else count_of(target, _EVERY_CHANGED)


def _pair(case: schema.Case) -> tuple[int, int] | None:
    """Positions of the first tensor and of the one that it is compared with, if their recipes are equal; else None."""
    named = operators.named_tensors(case)
    for place, (name, recipe) in enumerate(named[1:], 1):
        if name in _SECOND_ARGUMENTS and _have_equal_recipes(named[0][1], recipe) and not overlaps(recipe):
            return 0, place
    return None


def _have_equal_recipes(one: schema.Tensor, other: schema.Tensor) -> bool:
    same = (one.shape, one.dtype, one.fill) == (other.shape, other.dtype, other.fill)
    drawn = isinstance(one.fill, schema.Normal | schema.Integers | schema.Booleans) and not _is_index(one)
    return same and drawn and math.prod(one.shape) > 0


def _is_index(recipe: schema.Tensor) -> bool:
    """Integers from 0 on may be indices, which an operator does not compare with one another."""
    return isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0


def _has_equal_nan(case: schema.Case) -> bool:
    return _EQUAL_NAN_ARGUMENT in operators.traits(case.operator).arguments


def _plant_nonfinite(one: DrawnTensor, other: DrawnTensor, rng: PlanRng) -> None:
    """Write NaN and infinities to the same elements of both tensors, mostly the same values."""
    if overlaps(one.recipe) or not one.view.dtype.is_floating_point:
        return
    target = one.view if one.view.dim() else one.view.view(1)
    other_target = other.view if other.view.dim() else other.view.view(1)
    places = places_in(target, count_of(target, _EVERY_NONFINITE), rng)
    values = rng.chosen(_NONFINITE, len(places[0])).to(target.dtype).to(target.device)
    target[places] = values
    differ = rng.structure.random() < 0.25
    other_target[places] = values.flip(0) if differ else values


def _change_elements(tensor: DrawnTensor, count: int, rng: PlanRng) -> None:
    target = elements(tensor)
    places = places_in(target, count, rng)
    old = target[places]
    if target.dtype is torch.bool:
        target[places] = ~old
    elif target.dtype.is_floating_point:
        factors = torch.exp2(rng.uniform(*_CHANGED_EXPONENTS, count)) * rng.signs(count) + 1.0
        target[places] = (old.double() * factors.to(old.device)).to(old.dtype)
    elif target.is_complex():
        target[places] = old * 1.5
    else:
        target[places] = target.flatten()[rng.below(target.numel(), count).to(target.device)]
