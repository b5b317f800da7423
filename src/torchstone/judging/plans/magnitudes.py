"""Input plans (special values written into test inputs): values up to 100, of all magnitudes, shifted, or tiny.

Drawn numbers are of the order of 1: none overflows ``exp``, and sums of their squares lose no digits. The plans are:
some values up to ±100; some values of every magnitude; one tensor shifted by many standard deviations; all values tiny.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.base import Plan, Policy, Positions, When, is_pointwise
from torchstone.judging.plans.case_facts import CaseFacts, is_complex, is_unbounded
from torchstone.judging.plans.complex_values import in_parts
from torchstone.judging.plans.extreme_positions import place_ends
from torchstone.judging.plans.forward_part import forward_call
from torchstone.judging.plans.plan_randomness import DrawValues, PlanRng, plant_where

_EVERY_HUNDRED = 16
_EVERY_MAGNITUDE = 4
"""One element in this many is planted."""
_MODERATE, LARGE = (16.0, 80.0), (90.0, 100.0)
"""Magnitudes that the plan `hundreds` writes, without those at which ``exp`` overflows in float16 or float32: there
honest formulas differ by a factor."""
_EXPONENT_SHARE = 0.45
"""Largest exponent of a value, as a share of that of the dtype's largest number: sums of squares stay finite."""
_POINTWISE_EXPONENT_SHARE = 0.9
"""The same for pointwise operators: ``hypot`` exists because squares overflow."""
_COMPLEX_EXPONENT_SHARE = 0.45
"""The same for each part of a complex number, whose magnitude honest kernels compute by squares."""
_FLOAT16_EXPONENT_SHARE = 0.75
"""The same for float16, where squares overflow at 256. Where torch gives infinity, several results are accepted."""
_TOP_EXPONENTS = (4.0, 4.0, 10.0, 128.0)
"""Exponents of two: one of them, drawn, bounds a call's magnitudes; pointwise operators get the last. Where elements
are combined, as in a softmax, larger magnitudes would hide values between 6 and 16."""
_USUAL_EXPONENTS = (-6.0, 10.0)
"""Exponents of two of the common magnitudes."""
_EXP_OVERFLOW_RANGES = {
    torch.float16: (10.5, 12.5),
    torch.bfloat16: (80.0, 90.0),
    torch.float32: (80.0, 90.0),
    torch.float64: (250.0, 715.0),
}
"""Magnitudes around the overflow of ``exp``, which are not written: honest formulas of ``cosh`` overflow a little
earlier or later. For float64, around the overflow of its square: bounds are computed in float64 too.
"""
_NEARLY_INFINITE_SHARE = 2.0**-10
"""Share of the dtype's largest number. In another order, an intermediate product of such a result may be infinite."""
_SHIFT_EXPONENTS = {
    torch.float16: (4.0, 5.0),
    torch.float32: (12.0, 13.0),
}
"""Shift in standard deviations, as exponents of two: the dtype still represents differences of values, but not of
their squares. Kernels do not compute squares in float16, but a long sum overflows there where its mean does not.
"""


class Hundreds(Plan):
    """Magnitudes up to 100, also in cotangents. If elements are combined, also a larger value near a tensor's end."""

    name = "hundreds"
    phrase = f"inputs included values up to ±{LARGE[1]:g}"
    policy = Policy(When.FIRST, gradients=True, models=True, factorizations=True, whole_call=True, thorough_only=True)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.has_unbounded or (not facts.tells_positions and facts.has_complex)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        plant_where(call, rng, _hundreds, _EVERY_HUNDRED, is_unbounded)
        plant_where(call, rng, _complex_hundreds, _EVERY_HUNDRED, is_complex)
        if not is_pointwise(call.case):
            for tensor in call.tensors:
                if tensor.view.numel() and is_unbounded(tensor.recipe):
                    place_ends(tensor, rng)


class Magnitudes(Plan):
    """Values of every order of magnitude up to a power of two, half of them of common orders of magnitude."""

    name = "magnitudes"
    phrase = "inputs included very large and very small values"
    policy = Policy(gradients=True, whole_call=True)

    def applies(self, facts: CaseFacts) -> bool:
        if facts.has_unbounded:
            return not facts.traits.has_float_degree
        return not facts.tells_positions and facts.has_complex and facts.traits.pointwise

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        if native.dtype is torch.float16:
            return super().excuses(call, place, native, got)
        return (native.abs() > torch.finfo(native.dtype).max * _NEARLY_INFINITE_SHARE) & ~torch.isfinite(got)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        gradient, target = schema.is_gradient(call.case.operator), forward_call(call)
        pointwise = is_pointwise(target.case)
        top = _TOP_EXPONENTS[-1] if pointwise else rng.structure.choice(_TOP_EXPONENTS)
        # The formula for the derivative of sinc loses every digit for a tiny argument.
        least = _USUAL_EXPONENTS[0] if gradient else -math.inf
        share = _POINTWISE_EXPONENT_SHARE if pointwise and not gradient else _EXPONENT_SHARE
        plant_where(target, rng, _magnitudes(least, top, share), _EVERY_MAGNITUDE, is_unbounded)
        if pointwise:
            plant_where(target, rng, _complex_magnitudes, _EVERY_MAGNITUDE, is_complex)


class Shifted(Plan):
    """One of the largest tensors, shifted as a whole: a variance does not depend on the shift, but wrong formulas do.

    Only one tensor is shifted: if two were and the operator combines them, their difference would hide other errors.
    """

    name = "moved"
    phrase = "one input was shifted as a whole by many standard deviations"
    policy = Policy(When.LARGE, Positions.EXCLUDED, gradients=True, models=True)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.pointwise and any(map(_may_be_shifted, facts.filled))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        _shift(call, rng, rng.structure.choice((1.0, -1.0)))


class Lowered(Shifted):
    """As :class:`Shifted`, for models only, always to lower values."""

    name = "lowered"
    phrase = "one input was lowered as a whole by many standard deviations"

    def applies(self, facts: CaseFacts) -> bool:
        return facts.model and super().applies(facts)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        _shift(call, rng, -1.0)


class TinyValues(Plan):
    """All values times a small power of two. Not planted: an ordinary call of the case with narrower fills.

    The call is made by :class:`torchstone.judging.planting.tiny_calls.TinyCall`, and no record names the plan.
    """

    name = "scaled"
    policy = Policy(positions=Positions.IRRELEVANT, gradients=True, whole_call=True, thorough_only=True)
    makes_own_call = True

    def applies(self, facts: CaseFacts) -> bool:
        return any(map(may_be_scaled, schema.tensors_of(facts.whole_case)))


def may_be_scaled(recipe: schema.Tensor) -> bool:
    """Whether a recipe's values may be multiplied by a power of two."""
    return isinstance(recipe.fill, schema.Normal) and not recipe.fill.specials


def _hundreds(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    moderate, large = rng.uniform(*_MODERATE, count), rng.uniform(*LARGE, count)
    return torch.where(rng.below(2, count) == 0, moderate, large) * rng.signs(count)


def _complex_hundreds(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Magnitudes up to 100 in the real part, the imaginary part or both."""
    return in_parts(rng, _hundreds(rng, tensor, count), _hundreds(rng, tensor, count))


def _magnitudes(least: float, top: float, share: float) -> DrawValues:
    """Draws values with exponents of two from ``least`` to ``top``, within a share of the dtype's range."""

    def values(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
        dtype = tensor.view.dtype
        smallest, most = _exponents(dtype, share)
        all_orders = rng.uniform(max(smallest, least), min(top, most), count)
        usual = rng.uniform(max(smallest, _USUAL_EXPONENTS[0]), min(top, most, _USUAL_EXPONENTS[1]), count)
        found = torch.exp2(torch.where(rng.below(2, count) == 0, all_orders, usual))
        low, high = _EXP_OVERFLOW_RANGES[dtype]
        found = torch.where((found > low) & (found < high), found * (low / high), found)
        return found * rng.signs(count)

    return values


def _exponents(dtype: torch.dtype, share: float) -> tuple[float, float]:
    """Smallest and largest exponent of two that is written for a dtype."""
    exponent = math.log2(torch.finfo(dtype).max)
    if dtype is torch.float16:
        return -exponent * _FLOAT16_EXPONENT_SHARE, exponent * _FLOAT16_EXPONENT_SHARE
    # No dtype is wider than float64, so squares of float64 values must not overflow either.
    return -exponent * _EXPONENT_SHARE, exponent * (_EXPONENT_SHARE if dtype is torch.float64 else share)


def _complex_magnitudes(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Values of every order of magnitude whose squares are finite, in one part or in both."""
    exponent = _COMPLEX_EXPONENT_SHARE * math.log2(torch.finfo(tensor.view.real.dtype).max)
    parts = (torch.exp2(rng.uniform(-exponent, exponent, count)) * rng.signs(count) for _ in range(2))
    return in_parts(rng, *parts)


def _may_be_shifted(recipe: schema.Tensor) -> bool:
    """Whether the tensor may be shifted. bfloat16 would lose all digits; for float64 no wider reference exists."""
    return (
        is_unbounded(recipe) and operators.torch_dtype(recipe.dtype) in _SHIFT_EXPONENTS and math.prod(recipe.shape) > 1
    )


def _shift(call: DrawnCall, rng: PlanRng, sign: float) -> None:
    tensors = [tensor for tensor in call.tensors if _may_be_shifted(tensor.recipe)]
    most = max(tensor.view.numel() for tensor in tensors)
    tensor = rng.structure.choice([tensor for tensor in tensors if tensor.view.numel() == most])
    deviations = sign * 2.0 ** rng.structure.uniform(*_SHIFT_EXPONENTS[tensor.view.dtype])
    tensor.storage.add_(deviations * getattr(tensor.recipe.fill, "std", 1.0))  # the memory: views may overlap
