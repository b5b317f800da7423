"""Input plans (special values written into test inputs): values at the ends of a stated range, and outside it.

A suite states a range so that most results are finite: divisors from 1/8 to 8, probabilities between 0 and 1. The
operator accepts more: it divides by negative numbers, and defines the entropy of 0. A difference counts against a
kernel only where torch's own result is finite. If elements depend on one another, all of torch's results must be
finite. Integers from 0 on may be indices, so only pointwise operators and divisions get integers outside of the range.

Functions of mathematical physics are often written for positive arguments: these get only the ends of the range.
Arguments of a backward pass are results of a forward pass: these get neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.base import Plan, Policy, When, is_pointwise
from torchstone.judging.plans.case_facts import INTEGERS, CaseFacts, is_bounded, is_unbounded
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in

_EVERY, _EVERY_POINTWISE = 4, 2
"""One element in this many is planted."""
_FRACTIONS = tuple(sign * 2.0**-k for k in (1, 2, 4, 6) for sign in (1.0, -1.0))
"""Division by these is exact: no quotient is rounded to just above or below an integer."""
_OTHER_ARGUMENT_VALUES = (0.0, 0.0, 0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, 1.5)
"""Values for another tensor of a pointwise operator, if it has no range. Powers of negative numbers are defined only
for integer exponents."""
_LARGE = (16.0, 40.0)
"""Magnitudes of large values."""
_EXPONENT_SHARE = 0.9
"""Largest exponent of a power of two, as a share of that of the dtype's largest number. The smallest is minus that."""
_FLOAT64_EXPONENT_SHARE = 0.45
"""The same for float64: bounds contain squares, and no wider dtype can hold them."""
_FLOAT16_LEAST_EXPONENT = -23
"""Exponent of two: the second smallest subnormal number of float16."""
_LEAST_DIVISOR = 2
"""Divisors are at least this: the lowest integer divided by -1 ends the process on most CPUs, and 0 is refused."""


class AtRangeEnds(Plan):
    """0 and both ends of the range, in the same elements of all tensors of one shape, so that zeros are combined."""

    name = "ends"
    phrase = "inputs included 0 and both ends of their stated range"
    policy = Policy(may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        if not _has_ranges(facts):
            return False
        return facts.traits.for_positive or not (_has_any_integers(facts) or facts.traits.pointwise)

    def is_safe_on_gpu(self, facts: CaseFacts) -> bool:
        return is_pointwise(facts.whole_case)

    def allowed_in_timed_blocks(self, facts: CaseFacts, on_host: bool) -> bool:
        return self.is_safe_on_gpu(facts) and super().allowed_in_timed_blocks(facts, on_host)

    def accepts_any_result(self, call: DrawnCall, native: Mapping[ResultPosition, torch.Tensor]) -> bool:
        """Any result is accepted if elements depend on one another and torch gives NaN or infinity somewhere."""
        return not is_pointwise(call.case) and not all(bool(torch.isfinite(each).all()) for each in native.values())

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        open_ = ~torch.isfinite(native)
        return open_ & ~torch.isfinite(got) if is_pointwise(call.case) else open_

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        places: dict[torch.Size, tuple[torch.Tensor, ...]] = {}
        every = _EVERY_POINTWISE if is_pointwise(call.case) else _EVERY
        for tensor in call.tensors:
            if tensor.view.numel():
                target = elements(tensor)
                drawn = self._drawn(tensor, rng, count_of(target, every))
                if len(drawn):
                    at = places.setdefault(target.shape, places_in(target, count_of(target, every), rng))
                    at = tuple(place[: len(drawn)] for place in at)
                    target[at] = drawn.to(target.dtype).to(target.device)

    def _drawn(self, tensor: DrawnTensor, rng: PlanRng, count: int) -> torch.Tensor:
        recipe = tensor.recipe
        if _takes_any_integers(recipe, rng.case):
            return self._integers(tensor.view.dtype, recipe.fill, rng, count)
        if isinstance(recipe.fill, schema.Uniform) and is_bounded(recipe):
            return self._range_values(recipe.fill, rng, count, tensor.view.dtype)
        if is_pointwise(rng.case) and is_unbounded(recipe):
            return rng.chosen(_OTHER_ARGUMENT_VALUES if not rng.distinct else (), count)
        return torch.empty(0)

    def _integers(self, dtype: torch.dtype, fill: schema.Fill, rng: PlanRng, count: int) -> torch.Tensor:
        return torch.empty(0)

    def _range_values(self, fill: schema.Uniform, rng: PlanRng, count: int, dtype: torch.dtype) -> torch.Tensor:
        ends = _ends(fill)
        if rng.distinct:
            return rng.chosen(ends, min(count, len(ends)))
        return torch.where(rng.below(2, count) == 0, 0.0, rng.chosen(ends, count))


class OutsideRange(AtRangeEnds):
    """The ends, and values outside of the range, of both signs."""

    name = "beyond"
    phrase = "inputs included values outside their stated range"
    policy = Policy(When.EVERY_CASE, may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        ranges = _has_ranges(facts)
        return not (ranges and facts.traits.for_positive) and (ranges or _has_any_integers(facts))

    def _integers(self, dtype: torch.dtype, fill: schema.Fill, rng: PlanRng, count: int) -> torch.Tensor:
        return _any_integers(dtype, fill, rng, count)

    def _range_values(self, fill: schema.Uniform, rng: PlanRng, count: int, dtype: torch.dtype) -> torch.Tensor:
        at_ends = super()._range_values(fill, rng, count, dtype)
        return at_ends if rng.distinct else _outside(fill, rng, count, dtype, at_ends)


def _has_ranges(facts: CaseFacts) -> bool:
    """Whether some floating-point argument has a stated range that the operator itself does not need."""
    return any(map(is_bounded, facts.filled)) and not facts.traits.keeps_its_range


def _has_any_integers(facts: CaseFacts) -> bool:
    return any(_takes_any_integers(recipe, facts.case) for recipe in facts.filled)


def _ends(fill: schema.Uniform) -> tuple[float, ...]:
    """0, the ends of the range and the nearest integers outside of it."""
    low, high = fill.low, fill.high
    return tuple(dict.fromkeys((0.0, low, high, float(math.floor(low)), float(math.ceil(high)))))


def _outside(fill: schema.Uniform, rng: PlanRng, count: int, dtype: torch.dtype, at_ends: torch.Tensor) -> torch.Tensor:
    low, high = fill.low, fill.high
    mirrored = -rng.uniform(low, high, count)
    further = torch.where(
        rng.below(2, count) == 0, rng.chosen(_FRACTIONS, count), rng.uniform(*_LARGE, count) * rng.signs(count)
    )
    if is_pointwise(rng.case):
        further = torch.where(rng.below(3, count) == 0, _powers_of_two(rng, count, dtype), further)
    others = torch.where(rng.below(2, count) == 0, mirrored, further)
    # Where elements depend on one another, a single 0 could make every result infinite.
    return torch.where(rng.below(3, count) == 0, at_ends, others) if is_pointwise(rng.case) else others


def _powers_of_two(rng: PlanRng, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Powers of two, by which division is exact; for float16 also subnormal ones, which occur in practice."""
    share = _FLOAT64_EXPONENT_SHARE if dtype is torch.float64 else _EXPONENT_SHARE
    most = int(share * math.log2(torch.finfo(dtype).max))
    least = _FLOAT16_LEAST_EXPONENT if dtype is torch.float16 else -most
    return torch.exp2((rng.below(most - least + 1, count) + least).double()) * rng.signs(count)


def _any_integers(dtype: torch.dtype, fill: schema.Fill, rng: PlanRng, count: int) -> torch.Tensor:
    """Integers: about half negatives of the stated range, a quarter of any size, a quarter at the dtype's limits."""
    limits, divided = torch.iinfo(dtype), operators.traits(rng.case.operator).divides
    least = _LEAST_DIVISOR if divided else 0
    most = min(limits.max, max(least + 1, abs(getattr(fill, "high", 0))))
    of_any_size = least + rng.below(limits.max - least, count)  # below the largest, which is among the ends
    if dtype is torch.uint8:
        return torch.where(rng.below(8, count) == 0, limits.max, of_any_size)
    near = -(least + rng.below(most - least, count))
    ends = torch.where(rng.below(2, count) == 0, limits.max, limits.min + (1 if divided else 0))
    kind = rng.below(4, count)
    return torch.where(kind < 2, near, torch.where(kind == 2, of_any_size * rng.signs(count).long(), ends))


def _takes_any_integers(recipe: schema.Tensor, case: schema.Case) -> bool:
    """Whether the integers are drawn from 0 on though the operator accepts any: pointwise operators and divisions."""
    traits = operators.traits(case.operator)
    return (
        isinstance(recipe.fill, schema.Integers)
        and recipe.fill.low >= 0
        and operators.torch_dtype(recipe.dtype) in INTEGERS
        and (traits.pointwise or traits.divides)
        and not traits.steps_by_value
        and not traits.steps_by_exponent
    )
