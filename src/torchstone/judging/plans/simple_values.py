"""Input plan (special values written into test inputs): 0, small integers, halves, the call's own scalars.

No drawn number equals a bound of ``hardtanh``, is half an integer, or equals the element of the other tensor. A kernel
that is wrong there would agree. The plan also writes the representable numbers next to the call's scalars, and copies
elements of one tensor into another that it is combined with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, next_up, overlaps
from torchstone.judging.plans.base import Plan, Policy
from torchstone.judging.plans.case_facts import CaseFacts, is_complex, is_unbounded, takes_numbers
from torchstone.judging.plans.complex_values import complex_numbers
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, places_in, plant_where

_EVERY = 16
"""One element in this many is planted, and at least one."""
_EVERY_COPIED = 8
"""One element in this many is copied from another tensor."""
_SMALL_NUMBERS = tuple(sign * k / 2.0 for k in range(1, 14) for sign in (1.0, -1.0))
"""Integers and halves from 0.5 to 6.5, of either sign."""


class SimpleNumbers(Plan):
    """Simple numbers, and elements of one tensor copied into another that it broadcasts to."""

    name = "numbers"
    phrase = "inputs included 0, small integers, halves and the call's own scalar arguments"
    policy = Policy(gradients=True, models=True, factorizations=True)

    def applies(self, facts: CaseFacts) -> bool:
        return any(map(takes_numbers, facts.filled)) or (not facts.tells_positions and facts.has_complex)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        plant_where(call, rng, _numbers, _EVERY, takes_numbers)
        _copy_between_tensors(call, rng)
        plant_where(call, rng, complex_numbers, _EVERY, is_complex)


def _numbers(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Values to plant: half of them the case's own scalars or their neighbours in the dtype, half simple numbers."""
    dtype, fill = tensor.view.dtype, tensor.recipe.fill
    own = _within(fill, _own_numbers(rng.case, dtype))
    signed = operators.traits(rng.case.operator).tells_zero_signs
    zeros = [0.0, 0.0, -0.0, -0.0] if signed else [0.0, 0.0, 0.0, 0.0]
    simple = _within(fill, [0.0, *_SMALL_NUMBERS] if rng.distinct else [*zeros, *_SMALL_NUMBERS])
    own_count = count // 2 if own and simple else count if own else 0
    own_count += rng.structure.randrange(2) if own and simple and count % 2 else 0
    if rng.distinct:
        simple = [value for value in simple if value not in own]
    drawn = torch.cat([rng.chosen(own, own_count), rng.chosen(simple, count - own_count)])
    return drawn[torch.randperm(len(drawn), generator=rng.values)]


def _own_numbers(case: schema.Case, dtype: torch.dtype) -> list[float]:
    """The case's scalars where the dtype holds them exactly, and their neighbours in it."""
    found: dict[float, None] = {}
    for number in _scalars((*case.args, *case.kwargs.values())):
        if not dtype.is_floating_point:
            found[number] = None
        elif abs(number) < torch.finfo(dtype).max:
            rounded = float(torch.tensor(number, dtype=torch.float64).to(dtype))
            found |= dict.fromkeys([rounded] if rounded == number else [])
            found |= dict.fromkeys([next_up(rounded, dtype), -next_up(-rounded, dtype)])
    return list(found)


def _scalars(arguments: Sequence[schema.Argument]) -> list[float]:
    found: list[float] = []
    for argument in arguments:
        match argument:
            case schema.Scalar(value=int() | float() as value) if not isinstance(value, bool):
                found.append(float(value))
            case schema.Sequence(items=items):
                found += _scalars(items)
            case _:
                pass
    return found


def _within(fill: schema.Fill, numbers: Sequence[float]) -> list[float]:
    """The numbers that the recipe allows. Both ends of a real range are left out: rounding could cross them."""
    match fill:
        case schema.Uniform(low=low, high=high):
            return [number for number in numbers if low < number < high]
        case schema.Integers(low=low, high=high):
            return [number for number in numbers if low <= number < high and number.is_integer()]
        case _:
            return list(numbers)


def _copy_between_tensors(call: DrawnCall, rng: PlanRng) -> None:
    """Copy some elements from one tensor to another that it broadcasts to."""
    for pair in itertools.combinations(call.tensors, 2):
        directions = [(one, other) for one, other in (pair, pair[::-1]) if may_take_from(one, other)]
        if directions:
            one, other = rng.structure.choice(directions)
            target = one.view if one.view.dim() else one.view.view(1)
            places = places_in(target, count_of(target, _EVERY_COPIED), rng)
            target[places] = other.view.expand(target.shape)[places]


def may_take_from(one: DrawnTensor, other: DrawnTensor) -> bool:
    """Whether the recipe of one tensor allows the values of the other, and the other broadcasts to it."""
    if not one.view.numel() or one.view.dtype != other.view.dtype or overlaps(one.recipe):
        return False
    allowed = one.recipe.fill == other.recipe.fill or is_unbounded(one.recipe)
    numbers = takes_numbers(one.recipe) and takes_numbers(other.recipe)
    return allowed and numbers and _broadcasts(other.view.shape, one.view.shape)


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    sizes = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(one in (1, other) for one, other in sizes)
