"""Input plan (special values written into test inputs): one magnitude for all values, for log1p, expm1, erfc.

``log1p`` and ``expm1`` are for arguments so small that ``log(1 + x)`` and ``exp(x) - 1`` lose every digit, ``erfc`` for
arguments so large that ``1 - erf(x)`` does. Usual values do not show it: the error bound of an element grows with its
neighbours in memory. Here all neighbours are as small.
"""

from __future__ import annotations

from typing import NamedTuple

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, DrawnTensor
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, elements

_LEAST_OF_FILL = 1e-3
"""A range that begins nearer to 0 than this excludes no more than 0 itself."""


class _Where(NamedTuple):
    """The magnitudes to give to one argument."""

    argument: str
    exponents: tuple[float, float]
    """Exponents of two, between which the smallest magnitude lies."""
    of_float64: tuple[float, float]
    """The same for float64, which has more digits to lose."""
    spread: float
    """How much larger the largest magnitude may be, relative to the smallest."""
    signs: tuple[float, ...]

    def exponents_of(self, recipe: schema.Tensor) -> tuple[float, float]:
        return self.of_float64 if recipe.dtype == "float64" else self.exponents


_FOR_THEIR_DIGITS = {
    "log1p": _Where("self", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "expm1": _Where("self", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "xlog1py": _Where("other", (-20.0, -11.0), (-48.0, -30.0), 1.0, (1.0, -1.0)),
    "erfc": _Where("self", (1.5, 2.3), (2.5, 3.1), 0.05, (1.0,)),
    "log_ndtr": _Where("self", (2.0, 2.5), (3.0, 3.5), 0.05, (-1.0,)),
}
"""By the name of the operator."""


def is_for_its_digits(operator: str) -> bool:
    """Whether an operator exists for its precision where the plain formula has none."""
    return _name(operator) in _FOR_THEIR_DIGITS


class OneMagnitude(Plan):
    """All values of one argument lie between a number and a little more: up to twice, or 5 %."""

    name = "narrow"
    phrase = "all inputs had the same order of magnitude"
    policy = Policy(When.EVERY_CASE, Positions.EXCLUDED, keeps_digits=True)

    def applies(self, facts: CaseFacts) -> bool:
        return bool(_targets(facts.case))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        where = _FOR_THEIR_DIGITS[_name(call.case.operator)]
        for place in _targets(call.case):
            tensor = call.tensors[place]
            sign = rng.structure.choice([sign for sign in where.signs if _takes(tensor.recipe, where, sign)])
            _fill(tensor, sign * 2.0 ** rng.structure.uniform(*where.exponents_of(tensor.recipe)), where.spread, rng)


def _targets(case: schema.Case) -> list[int]:
    where = _FOR_THEIR_DIGITS.get(_name(case.operator))
    if where is None:
        return []
    return [
        place
        for place, (name, recipe) in enumerate(operators.named_tensors(case))
        if name == where.argument and 0 not in recipe.shape and any(_takes(recipe, where, sign) for sign in where.signs)
    ]


def _name(operator: str) -> str:
    return operators.traits(operator).base.removeprefix("special_").removesuffix("_")


def _takes(recipe: schema.Tensor, where: _Where, sign: float) -> bool:
    """Whether such values are within the range that the recipe states."""
    if not operators.torch_dtype(recipe.dtype).is_floating_point:
        return False
    least, most = where.exponents_of(recipe)
    far: float = 2.0**most * (1.0 + where.spread)
    ends = sorted([sign * 2.0**least, sign * far])
    match recipe.fill:
        case schema.Normal():
            return True
        case schema.Uniform(low=low, high=high):
            lowest = max(ends[0], _LEAST_OF_FILL) if sign > 0.0 else ends[0]
            return bool(low <= lowest and ends[1] <= high)
        case _:
            return False


def _fill(tensor: DrawnTensor, least: float, spread: float, rng: PlanRng) -> None:
    target = elements(tensor)
    drawn = least * (1.0 + rng.uniform(0.0, spread, target.numel()))
    target.copy_(drawn.to(target.dtype).view(target.shape).to(target.device))
