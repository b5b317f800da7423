"""The plan ``narrow``: all values of one order of magnitude, for functions that are there for their digits.

``log1p`` and ``expm1`` are for arguments so small that ``log(1 + x)`` and ``exp(x) - 1`` lose every digit, ``erfc`` for
those so large that ``1 - erf(x)`` does. Among values of usual size that does not show: bounds allow each element what
its neighbours may have, since of most functions, ``gelu`` among them, nobody expects more. Here all neighbours are as
small.
"""

from __future__ import annotations

from typing import NamedTuple

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor
from torchstone.judging.lots import Lot, elements

NARROW = "narrow"
_LEAST_OF_FILL = 1e-3
"""A range that begins nearer to 0 than this excludes no more than 0 itself."""


class _Where(NamedTuple):
    """Where the values of an argument are to lie."""

    argument: str
    exponents: tuple[float, float]
    """Powers of two, between which the least of them is."""
    of_float64: tuple[float, float]
    """The same of float64, which has more digits to lose."""
    spread: float
    """By how much the largest exceeds it, relatively."""
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
    """Whether an operator has digits where the formula that comes to mind has none."""
    return _name(operator) in _FOR_THEIR_DIGITS


def may_be_narrow(case: schema.Case) -> bool:
    return bool(_targets(case))


def plant_narrow(call: DrawnCall, lot: Lot) -> None:
    where = _FOR_THEIR_DIGITS[_name(call.case.operator)]
    for place in _targets(call.case):
        tensor = call.tensors[place]
        sign = lot.structure.choice([sign for sign in where.signs if _takes(tensor.recipe, where, sign)])
        _fill(tensor, sign * 2.0 ** lot.structure.uniform(*where.exponents_of(tensor.recipe)), where.spread, lot)


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
    return operator.split(".")[1].removeprefix("special_").removesuffix("_")


def _takes(recipe: schema.Tensor, where: _Where, sign: float) -> bool:
    """Whether such values are within what the recipe states."""
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


def _fill(tensor: DrawnTensor, least: float, spread: float, lot: Lot) -> None:
    target = elements(tensor)
    drawn = least * (1.0 + lot.uniform(0.0, spread, target.numel()))
    target.copy_(drawn.to(target.dtype).view(target.shape).to(target.device))
