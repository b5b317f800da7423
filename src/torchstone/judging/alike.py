"""The plans ``alike`` and ``nearly alike``: one tensor becomes the copy of another, but for a few elements.

Drawn tensors differ everywhere. A kernel for ``equal`` or ``allclose`` that always says no would agree, and one for a
distance that loses every digit where points coincide. So the second of two tensors becomes the first. Of operators that
say one truth of both, it stays so in one plan, and one element is changed in the other; of all others a few are. What
is changed is so by one part in two to one in a thousand. Where an operator is told what to make of two NaN, both get
NaN and infinities at the same places instead, every second time.

Not for arguments of a backward pass, which are what a forward one gave.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.lots import Lot, count_of, elements, places_in

ALIKE, NEARLY = "alike", "nearly alike"
_EVERY_CHANGED, _EVERY_NONFINITE = 64, 16
_CHANGED_EXPONENTS = (-10.0, -1.0)
_COMPARED_WITH = ("other", "target", "x2")
_EQUAL_NAN = "equal_nan"
"""Names of arguments."""
_NONFINITE = (math.nan, math.inf, -math.inf)


def plans_alike(case: schema.Case) -> list[str]:
    """For an operator that compares two tensors that are drawn alike, as a whole or rows of them."""
    alone = torch.Tag.pointwise in operators.resolve(case.operator).tags and not tells_one_truth(case)
    if alone or "backward" in case.operator or _pair(case) is None:
        return []
    return [ALIKE, NEARLY] if tells_one_truth(case) else [ALIKE]


def tells_one_truth(case: schema.Case) -> bool:
    """Whether the operator says one thing of all its arguments, yes or no: then hardly any drawn call is a yes."""
    returns = operators.resolve(case.operator)._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "bool"


def plant_alike(call: DrawnCall, lot: Lot, plan: str) -> None:
    pair = _pair(call.case)
    if pair is None:
        return
    one, other = (call.tensors[place] for place in pair)
    other.view.copy_(one.view)
    one_truth = tells_one_truth(call.case)
    if one_truth and plan == ALIKE:
        return  # the answer is yes
    if _asks_about_nan(call.case) and lot.structure.random() < 0.5:
        _plant_nonfinite(one, other, lot)
    else:
        _change(other, 1 if one_truth else count_of(elements(other), _EVERY_CHANGED), lot)


def _pair(case: schema.Case) -> tuple[int, int] | None:
    """The first tensor, and one of its kind that it is compared with and that can be written to."""
    named = operators.named_tensors(case)
    for place, (name, recipe) in enumerate(named[1:], 1):
        if name in _COMPARED_WITH and _are_drawn_alike(named[0][1], recipe) and not overlaps(recipe):
            return 0, place
    return None


def _are_drawn_alike(one: schema.Tensor, other: schema.Tensor) -> bool:
    same = (one.shape, one.dtype, one.fill) == (other.shape, other.dtype, other.fill)
    drawn = isinstance(one.fill, schema.Normal | schema.Integers | schema.Booleans) and not _is_index(one)
    return same and drawn and math.prod(one.shape) > 0


def _is_index(recipe: schema.Tensor) -> bool:
    """Whole numbers from 0 on may be indices, and two of those have nothing to do with each other."""
    return isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0


def _asks_about_nan(case: schema.Case) -> bool:
    declared = operators.resolve(case.operator)._schema.arguments
    return any(argument.name == _EQUAL_NAN for argument in declared)


def _plant_nonfinite(one: DrawnTensor, other: DrawnTensor, lot: Lot) -> None:
    """At the same places of both: mostly the same."""
    if overlaps(one.recipe) or not one.view.dtype.is_floating_point:
        return
    target = one.view if one.view.dim() else one.view.view(1)
    opposite = other.view if other.view.dim() else other.view.view(1)
    places = places_in(target, count_of(target, _EVERY_NONFINITE), lot)
    values = lot.chosen(_NONFINITE, len(places[0])).to(target.dtype).to(target.device)
    target[places] = values
    differing = lot.structure.random() < 0.25
    opposite[places] = values.flip(0) if differing else values


def _change(tensor: DrawnTensor, count: int, lot: Lot) -> None:
    target = elements(tensor)
    places = places_in(target, count, lot)
    old = target[places]
    if target.dtype is torch.bool:
        target[places] = ~old
    elif target.dtype.is_floating_point:
        factors = torch.exp2(lot.uniform(*_CHANGED_EXPONENTS, count)) * lot.signs(count) + 1.0
        target[places] = (old.double() * factors.to(old.device)).to(old.dtype)
    elif target.is_complex():
        target[places] = old * 1.5
    else:
        target[places] = target.flatten()[lot.below(target.numel(), count).to(target.device)]
