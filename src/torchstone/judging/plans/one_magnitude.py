"""Input plan (special values written into test inputs): one magnitude for all values, for log1p, expm1, erfc.

``log1p`` and ``expm1`` are for arguments so small that ``log(1 + x)`` and ``exp(x) - 1`` lose every digit, ``erfc`` for
arguments so large that ``1 - erf(x)`` does. Usual values do not show it: the error bound of an element grows with its
neighbours in memory. With this plan, all neighbours have the same magnitude.
"""

from __future__ import annotations

from typing import NamedTuple

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, elements

_NEAR_ZERO = 1e-3
"""A stated range that begins below this is taken to exclude only 0 itself."""


class _MagnitudeRange(NamedTuple):
    """The magnitudes to give to one argument."""

    argument: str
    exponents: tuple[float, float]
    """Range of the exponent of two of the smallest magnitude."""
    float64_exponents: tuple[float, float]
    """The same for float64, which has more digits to lose."""
    spread: float
    """How much larger the largest magnitude may be, relative to the smallest."""
    signs: tuple[float, ...]

    def exponents_of(self, recipe: schema.Tensor) -> tuple[float, float]:
        return self.float64_exponents if recipe.dtype == "float64" else self.exponents


_RANGES = {
    "log1p": _MagnitudeRange("self", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "expm1": _MagnitudeRange("self", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "xlog1py": _MagnitudeRange("other", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "erfc": _MagnitudeRange("self", (1.5, 2.3), (2.5, 3.1), 0.05, (1.0,)),
    "log_ndtr": _MagnitudeRange("self", (2.0, 2.5), (3.0, 3.5), 0.05, (-1.0,)),
}
"""Operators that exist for their precision, by base name."""


def exists_for_precision(operator: str) -> bool:
    """Whether an operator exists for its precision where the plain formula loses every digit."""
    return _name(operator) in _RANGES


class OneMagnitude(Plan):
    """All values of one argument lie between a number and its double, or 5 % more, depending on the operator."""

    name = "narrow"
    phrase = "all inputs had the same order of magnitude"
    policy = Policy(When.EVERY_CASE, Positions.EXCLUDED, keeps_digits=True)

    def applies(self, facts: CaseFacts) -> bool:
        return bool(_targets(facts.case))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        magnitudes = _RANGES[_name(call.case.operator)]
        for place in _targets(call.case):
            tensor = call.tensors[place]
            sign = rng.structure.choice([sign for sign in magnitudes.signs if _allows(tensor.recipe, magnitudes, sign)])
            _fill(
                tensor,
                sign * 2.0 ** rng.structure.uniform(*magnitudes.exponents_of(tensor.recipe)),
                magnitudes.spread,
                rng,
            )


def _targets(case: schema.Case) -> list[int]:
    magnitudes = _RANGES.get(_name(case.operator))
    if magnitudes is None:
        return []
    return [
        place
        for place, (name, recipe) in enumerate(operators.named_tensors(case))
        if name == magnitudes.argument
        and 0 not in recipe.shape
        and any(_allows(recipe, magnitudes, sign) for sign in magnitudes.signs)
    ]


def _name(operator: str) -> str:
    return operators.traits(operator).base.removeprefix("special_").removesuffix("_")


def _allows(recipe: schema.Tensor, magnitudes: _MagnitudeRange, sign: float) -> bool:
    """Whether values of these magnitudes and this sign are within the range that the recipe states."""
    if not operators.torch_dtype(recipe.dtype).is_floating_point:
        return False
    least, most = magnitudes.exponents_of(recipe)
    largest: float = 2.0**most * (1.0 + magnitudes.spread)
    ends = sorted([sign * 2.0**least, sign * largest])
    match recipe.fill:
        case schema.Normal():
            return True
        case schema.Uniform(low=low, high=high):
            lowest = max(ends[0], _NEAR_ZERO) if sign > 0.0 else ends[0]
            return bool(low <= lowest and ends[1] <= high)
        case _:
            return False


def _fill(tensor: DrawnTensor, least: float, spread: float, rng: PlanRng) -> None:
    target = elements(tensor)
    drawn = least * (1.0 + rng.uniform(0.0, spread, target.numel()))
    target.copy_(drawn.to(target.dtype).view(target.shape).to(target.device))
