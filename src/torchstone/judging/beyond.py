"""The plans ``ends`` and ``beyond``: values at the ends of a stated range, and outside of it.

A suite states a range so that most answers are numbers: divisors from 1/8 to 8, probabilities between 0 and 1. That is
no promise of the operator's, which also divides by negative numbers and knows what the entropy of 0 is. So these are
planted, too, and held against a kernel only where torch's own answer is finite: of operators whose elements have to do
with one another, only if all of it is. Of whole numbers in ranges from 0, which may be indices, only pointwise
operators get others: they look nothing up.

Functions of mathematical physics are often written for positive arguments, and arguments of a backward pass are
results of a forward one: these get the ends alone, or nothing.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor
from torchstone.judging.lots import ONCE, Lot, count_of, elements, places_in
from torchstone.judging.wide import divides, takes_wide

PLANS = ("ends", "beyond")
_EVERY, _EVERY_POINTWISE = 4, 2
_FRACTIONS = tuple(sign * 2.0**-k for k in (1, 2, 4, 6) for sign in (1.0, -1.0))
"""Divisions by these are exact: no quotient comes to lie just above or below a whole number."""
_PARTNERS = (0.0, 0.0, 0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, 1.5)
"""What lies opposite, where it may be anything: a power of a negative number is one only if the exponent is whole."""
_LARGE = (16.0, 40.0)
_MOST_OF_MAX = 0.9
"""An exponent of the largest number of the dtype: up to there, and down to its inverse, go powers of two."""
_MOST_OF_FLOAT64 = 0.45
"""Bounds hold squares, and there is nothing wider to compute them in."""
_LEAST_OF_HALF = -23
"""A power of two: a step from the least number."""
_FOR_POSITIVE = ("gamma", "zeta", "special_", "bessel")
"""Parts of names of functions that are often written for positive arguments."""
_WITHOUT = ("backward", "fractional", "quant", "polynomial", "rnn", "fused")
"""Parts of names of operators whose ranges are more than a habit: what a forward pass gave, or a place in a window."""
_COUNTING = ("pow", "shift")
"""Of whole numbers: loops that take as many steps as an exponent says are honest."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LEAST_DIVISOR = 2
"""The least number by -1 ends the process on most hosts, and 0 is refused."""


def plans_beyond(case: schema.Case) -> list[str]:
    """Those of the two plans that have something to plant into this case."""
    name = case.operator.split(".")[1]
    recipes = [recipe for recipe in schema.tensors_of(case) if math.prod(recipe.shape)]
    floats = any(_is_bounded(recipe) for recipe in recipes) and not any(part in name for part in _WITHOUT)
    if floats and any(part in name for part in _FOR_POSITIVE):
        return ["ends"]
    if any(_is_counting(recipe, case) for recipe in recipes):
        return ["beyond"]
    return [] if not floats else ["beyond"] if _is_pointwise(case) else list(PLANS)


def is_beyond(plan: str) -> bool:
    return plan.removesuffix(ONCE) in PLANS


def plant_beyond(call: DrawnCall, lot: Lot, plan: str) -> None:
    """At the same places in all tensors of one shape, so that zeros meet."""
    places: dict[torch.Size, tuple[torch.Tensor, ...]] = {}
    every = _EVERY_POINTWISE if _is_pointwise(call.case) else _EVERY
    for tensor in call.tensors:
        if tensor.view.numel():
            target = elements(tensor)
            drawn = _drawn(tensor, lot, plan.removesuffix(ONCE), count_of(target, every))
            if len(drawn):
                at = places.setdefault(target.shape, places_in(target, count_of(target, every), lot))
                at = tuple(place[: len(drawn)] for place in at)
                target[at] = drawn.to(target.dtype).to(target.device)


def _drawn(tensor: DrawnTensor, lot: Lot, plan: str, count: int) -> torch.Tensor:
    recipe = tensor.recipe
    if _is_counting(recipe, lot.case):
        return _whole_numbers(tensor.view.dtype, recipe.fill, lot, count) if plan == "beyond" else torch.empty(0)
    if isinstance(recipe.fill, schema.Uniform) and _is_bounded(recipe):
        return _around(recipe.fill, lot, plan, count, tensor.view.dtype)
    if _is_pointwise(lot.case) and _is_unbounded(recipe):
        return lot.chosen(_PARTNERS if not lot.once else (), count)
    return torch.empty(0)


def _around(fill: schema.Uniform, lot: Lot, plan: str, count: int, dtype: torch.dtype) -> torch.Tensor:
    """0, the ends of the range and the whole numbers outside of it; and, if beyond, others of both signs."""
    low, high = fill.low, fill.high
    ends = tuple(dict.fromkeys((0.0, low, high, float(math.floor(low)), float(math.ceil(high)))))
    if lot.once:
        return lot.chosen(ends, min(count, len(ends)))
    at_ends = torch.where(lot.below(2, count) == 0, 0.0, lot.chosen(ends, count))
    if plan == "ends":
        return at_ends
    mirrored = -lot.uniform(low, high, count)
    further = torch.where(
        lot.below(2, count) == 0, lot.chosen(_FRACTIONS, count), lot.uniform(*_LARGE, count) * lot.signs(count)
    )
    if _is_pointwise(lot.case):
        further = torch.where(lot.below(3, count) == 0, _of_any_order(lot, count, dtype), further)
    others = torch.where(lot.below(2, count) == 0, mirrored, further)
    # One 0 would leave nothing of a whole result that it divides.
    return torch.where(lot.below(3, count) == 0, at_ends, others) if _is_pointwise(lot.case) else others


def _of_any_order(lot: Lot, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Powers of two, by which divisions are exact, too; of float16 also those that are not normal: people meet them."""
    share = _MOST_OF_FLOAT64 if dtype is torch.float64 else _MOST_OF_MAX
    most = int(share * math.log2(torch.finfo(dtype).max))
    least = _LEAST_OF_HALF if dtype is torch.float16 else -most
    return torch.exp2((lot.below(most - least + 1, count) + least).double()) * lot.signs(count)


def _whole_numbers(dtype: torch.dtype, fill: schema.Fill, lot: Lot, count: int) -> torch.Tensor:
    """Any that the dtype holds, and every second one near those that are stated, but of the other sign."""
    limits, divided = torch.iinfo(dtype), divides(lot.case.operator)
    least = _LEAST_DIVISOR if divided else 0
    most = min(limits.max, max(least + 1, abs(getattr(fill, "high", 0))))
    any_ = least + lot.below(limits.max - least, count)  # short of the largest, which is among the ends
    if dtype is torch.uint8:
        return torch.where(lot.below(8, count) == 0, limits.max, any_)
    near = -(least + lot.below(most - least, count))
    ends = torch.where(lot.below(2, count) == 0, limits.max, limits.min + (1 if divided else 0))
    kind = lot.below(4, count)
    return torch.where(kind < 2, near, torch.where(kind == 2, any_ * lot.signs(count).long(), ends))


def _is_bounded(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Uniform) and operators.torch_dtype(recipe.dtype) in _FLOATS


def _is_unbounded(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _FLOATS


def _is_counting(recipe: schema.Tensor, case: schema.Case) -> bool:
    """Whole numbers that a suite states from 0 on, though the operator takes any. What divides is no index either."""
    return (
        isinstance(recipe.fill, schema.Integers)
        and recipe.fill.low >= 0
        and operators.torch_dtype(recipe.dtype) in _WHOLE
        and (_is_pointwise(case) or divides(case.operator))
        and takes_wide(case.operator)
        and not any(part in case.operator for part in _COUNTING)
    )


def _is_pointwise(case: schema.Case) -> bool:
    return torch.Tag.pointwise in operators.resolve(case.operator).tags
