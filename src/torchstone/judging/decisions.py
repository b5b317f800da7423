"""Values at which operators decide, planted into some of the checked calls: never into those that are timed.

Drawn values do not meet an operator's decision points by themselves: no normal number equals a bound of ``hardtanh``,
is half an integer, overflows ``exp`` or is NaN, and no drawn index is negative. A kernel that is wrong there would
agree. So a plan names a kind of values, which :func:`plant` writes to random places of a drawn call; everything else
keeps what was drawn. What a recipe's range excludes is planted by :mod:`torchstone.judging.beyond` alone; a normal fill
excludes nothing. Whether torch itself stands by its answer there is asked in :mod:`torchstone.judging.vetting`.

A plan is a function of the case, the call's seed and the plan's name, drawn on the host: a replay plants it again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from torchstone import operators, schema
from torchstone.errors import UsageError
from torchstone.judging.alike import ALIKE, NEARLY, plans_alike, plant_alike
from torchstone.judging.beyond import plans_beyond, plant_beyond
from torchstone.judging.complex_numbers import complex_numbers, in_parts, is_complex
from torchstone.judging.counting import LOUD, UNUSED, plans_of_counting, plant_counting
from torchstone.judging.inner import inner_call, inner_case
from torchstone.judging.inputs import DrawnCall, DrawnTensor, next_up, overlaps
from torchstone.judging.lone import plant_lone
from torchstone.judging.lots import ONCE, Lot, Values, count_of, elements, places_in, plant_into
from torchstone.judging.meeting import MEETING, may_meet, plant_meeting
from torchstone.judging.missing import may_be_missing, plant_missing
from torchstone.judging.narrow import NARROW, may_be_narrow, plant_narrow
from torchstone.judging.nonfinite_inputs import plant_non_finite
from torchstone.judging.padded import has_mask, plant_padded
from torchstone.judging.repeated import INFINITE, REPEATED, may_be_infinite, may_repeat, plant_repeated
from torchstone.judging.rows import (
    is_maskable,
    may_be_flat,
    place_ends,
    places_matter,
    plant_flat,
    plant_masks,
    plant_placed,
)
from torchstone.judging.sided import ABOVE, BELOW, may_be_on_one_side, plant_on_one_side
from torchstone.judging.whole import NONE, WHOLE, plans_as_a_whole, plant_whole
from torchstone.judging.wide import numbers_in, plant_wide, takes_wide

_EVERY = 16
"""One element in so many is planted, and at least one."""
_EVERY_NONFINITE = 64
"""Fewer: one of them takes a whole sum with it."""
_EVERY_SHARED = 8
_EVERY_NEGATIVE = 4
_SMALL = tuple(sign * k / 2.0 for k in range(1, 14) for sign in (1.0, -1.0))
"""Integers and halves."""
_MODERATE, LARGE = (16.0, 80.0), (90.0, 100.0)
"""Magnitudes of hundreds. Not where ``exp`` overflows in float16 or float32: honest formulas differ by a factor."""
_MOST_OF_MAX = 0.45
"""An exponent of the largest number of the dtype: a sum of squares of these is still finite."""
_MOST_OF_ALL = 0.9
"""The same, where each element is by itself: ``hypot`` is there because squares overflow."""
_MOST_OF_COMPLEX = 0.45
"""The same of each part of a complex number, whose length is computed by squares in honest use."""
_MOST_OF_HALF = 0.75
"""The same of float16, where squares overflow at 256, which people meet. What torch itself makes infinite is open."""
_TOPS = (4.0, 4.0, 10.0, 128.0)
"""Powers of two that a call's magnitudes end at, one of them drawn, as far as the dtype goes: where values meet, as in
a softmax, larger ones would hide what becomes of those between 6 and 16."""
_USUAL_EXPONENTS = (-6.0, 10.0)
_OVERFLOWS = {
    torch.float16: (10.5, 12.5),
    torch.bfloat16: (80.0, 90.0),
    torch.float32: (80.0, 90.0),
    torch.float64: (250.0, 715.0),
}
"""Where ``exp`` does, about: honest formulas of ``cosh`` and the like overflow a little earlier or later. Of float64,
where its square does: bounds are computed in float64, too.
"""
_EVERY_MAGNITUDE = 4
_MOVED_EXPONENTS = {
    torch.float16: (4.0, 5.0),
    torch.float32: (12.0, 13.0),
}
"""By how many deviations, as powers of two: the dtype still tells values apart, and their squares no longer. In float16
nobody computes squares; but a long sum is more than it holds, and its mean is not.
"""
_DECOMPOSE = frozenset({
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "geqrf", "householder", "inv", "inverse", "ldl", "lstsq",
    "lu", "matrix", "orgqr", "ormqr", "pinv", "pinverse", "qr", "slogdet", "solve", "svd", "svdvals",
})  # fmt: skip
"""Words in the names of operators."""
_COUNT_BACK = frozenset({"index", "index_put", "take", "put"})
"""Operators that count negative indices from the end on every device."""
_ABOUT_SIGNS = ("signbit", "copysign")
"""Operators that tell 0 from -0. Elsewhere that is a matter of taste, as in which way ``atan2`` turns."""
_ABOUT_INFINITIES = ("isinf", "isfinite", "isposinf", "isneginf", "logaddexp", "logaddexp2")
CARRIED = "carried"
"""Infinities, for what carries values along or compares them: there they are values like any other."""
_NO_GRADIENT = (
    "nan",
    "infinities",
    CARRIED,
    "wide",
    "ends",
    "beyond",
    "padded",
    "missing",
    ALIKE,
    NEARLY,
    NARROW,
    REPEATED,
    MEETING,
    BELOW,
    ABOVE,
    WHOLE,
    NONE,
    INFINITE,
)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def plans_for(case: schema.Case, *, once: bool) -> list[str]:
    """The plans that have something to plant into this case; of a gradient, into the operator's own arguments.

    What becomes of a number that is none autograd does not promise; models that problems define are not made for such
    numbers either.
    """
    if schema.is_gradient(case.operator):
        of_operator = plans_for(inner_case(case), once=once)
        return [
            *plans_of_counting(case),
            *(plan for plan in of_operator if plan.removesuffix(ONCE) not in _NO_GRADIENT),
        ]
    recipes = [recipe for recipe in schema.tensors_of(case) if math.prod(recipe.shape)]
    model = schema.is_model(case.operator)
    found: list[str] = []
    if any(_takes_numbers(recipe) for recipe in recipes):
        found.append("numbers")
    if not once and any(map(is_complex, recipes)):
        found += [] if "numbers" in found else ["numbers"]
        found += [] if any(map(_is_unbounded, recipes)) else ["hundreds"]
        pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
        found += ["magnitudes"] if pointwise and not any(map(_is_unbounded, recipes)) else []
    if any(_is_unbounded(recipe) for recipe in recipes):
        found.append("hundreds")
        if not model and not decomposes(case.operator):
            found += [] if _counts_by_floats(case.operator) else ["magnitudes"]
            found += ["nan", "infinities"] if _is_about_no_numbers(case, recipes) else []
            found += ["masked"] if is_maskable(case) else []
            found += ["missing"] if may_be_missing(case) else []
        if not once and _moves(case, recipes):
            found += ["moved", "lowered"] if model else ["moved"]
        if not once and _may_be_flat(case, recipes):
            found.append("flat")
    if not model and not decomposes(case.operator):
        found += plans_beyond(case)
        found += ["padded"] if has_mask(case) and not once else []
        found += [] if once else plans_alike(case)
        found += [NARROW] if may_be_narrow(case) and not once else []
        found += plans_as_a_whole(case, once=once)
    if not model and takes_wide(case.operator) and numbers_in(case):
        found.append("wide")
    if not model and places_matter(case):
        found.append("placed")
    if not model and any(_is_index(recipe) for recipe in recipes):
        found += ["negative", "marked"] if _marks(case) else ["negative"]
    found = [plan + ONCE for plan in found] if once else found
    found += [BELOW, ABOVE] if once and not decomposes(case.operator) and may_be_on_one_side(case) else []
    if not model:
        points = once and not decomposes(case.operator)
        found += [REPEATED] if points and may_repeat(case) else []
        found += [INFINITE] if points and may_be_infinite(case) else []
        found += [MEETING] if may_meet(case) else []
    return found


def _moves(case: schema.Case, recipes: Sequence[schema.Tensor]) -> bool:
    """Whether it may matter where values lie, all together: a variance does not, and is often computed as if it did.

    Not to what takes each by itself; and where results say which is the largest, none may come to equal another.
    """
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    return not pointwise and not decomposes(case.operator) and any(_may_be_moved(recipe) for recipe in recipes)


def _may_be_flat(case: schema.Case, recipes: Sequence[schema.Tensor]) -> bool:
    """Whether rows of one value may matter."""
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    return not (pointwise or decomposes(case.operator)) and any(
        _is_unbounded(recipe) and may_be_flat(recipe) for recipe in recipes
    )


def _is_about_no_numbers(case: schema.Case, recipes: Sequence[schema.Tensor]) -> bool:
    """Whether the operator exists for them, or the case asks for them.

    Elsewhere most kernels that people write, and are content with, give another answer than torch:
    ``where(x > 0, x, 0)`` makes 0 of NaN.
    """
    name = case.operator.split(".")[1]
    return "nan" in name or name in _ABOUT_INFINITIES or any(getattr(r.fill, "specials", False) for r in recipes)


def may_carry(case: schema.Case) -> bool:
    """Whether there is an argument that infinities may be planted into."""
    special = schema.is_gradient(case.operator) or schema.is_model(case.operator) or decomposes(case.operator)
    return not special and any(_is_unbounded(r) and math.prod(r.shape) for r in schema.tensors_of(case))


def leaves_rounding(call: DrawnCall) -> bool:
    """Whether the deviation of a row of one value is asked for: 0, or what rounding leaves, but a number."""
    name = call.case.operator.split(".")[1]
    return call.planted.startswith("flat") and ("std" in name or "var" in name)


def counts_back(operator: str) -> bool:
    """Whether torch promises that a negative index counts from the end."""
    return operator.split(".")[1].removesuffix("_").removeprefix("_unsafe_") in _COUNT_BACK


def _counts_by_floats(operator: str) -> bool:
    """Whether a floating-point number says how often something is done: the degree of a polynomial may be anything."""
    return "polynomial" in operator


def decomposes(operator: str) -> bool:
    """Whether LAPACK or its like does the work, which may not come to an end with numbers that are none."""
    return not _DECOMPOSE.isdisjoint(operator.split(".")[1].split("_"))


def plant(call: DrawnCall, plan: str) -> DrawnCall:
    """The call with the plan's values in it, written to its own storages."""
    gradient = schema.is_gradient(call.case.operator)
    outer = plan.startswith("hundreds") or plan in (UNUSED, LOUD)
    _write(call if outer else inner_call(call), plan, gradient)
    return replace(call, planted=plan)


def _write(call: DrawnCall, plan: str, gradient: bool) -> None:
    lot = Lot(call, plan)
    match plan.removesuffix(ONCE):
        case "numbers":
            _plant(call, lot, _numbers, _EVERY, _takes_numbers)
            _share(call, lot)
            _plant(call, lot, complex_numbers, _EVERY, is_complex)
        case "hundreds":
            _plant(call, lot, _hundreds, _EVERY, _is_unbounded)
            _plant(call, lot, _complex_hundreds, _EVERY, is_complex)
            _put_extremes_at_the_ends(call, lot)
        case "magnitudes":
            pointwise = torch.Tag.pointwise in operators.resolve(call.case.operator).tags
            top = _TOPS[-1] if pointwise else lot.structure.choice(_TOPS)
            least = _USUAL_EXPONENTS[0] if gradient else -math.inf
            share = _MOST_OF_ALL if pointwise and not gradient else _MOST_OF_MAX
            values: Values = lambda lot, tensor, count: _magnitudes(lot, tensor, count, least, top, share)  # noqa: E731
            _plant(call, lot, values, _EVERY_MAGNITUDE, _is_unbounded)
            if pointwise:
                _plant(call, lot, _complex_magnitudes, _EVERY_MAGNITUDE, is_complex)
        case "masked":
            plant_masks(call, lot)
        case "missing":
            plant_missing(call, lot)
        case "padded":
            plant_padded(call, lot)
        case "ends" | "beyond":
            plant_beyond(call, lot, plan)
        case "flat":
            plant_flat(call, lot)
        case "wide":
            plant_wide(call, lot)
        case "placed":
            plant_placed(call, lot)
        case "unused" | "loud":
            plant_counting(call, lot, plan)
        case "alike" | "nearly alike":
            plant_alike(call, lot, plan)
        case "narrow":
            plant_narrow(call, lot)
        case "lone":
            plant_lone(call, lot)
        case "whole" | "none":
            plant_whole(call, lot, plan.removesuffix(ONCE))
        case "repeated" | "infinite":
            plant_repeated(call, lot, plan)
        case "below" | "above":
            plant_on_one_side(call, plan)
        case "meeting":
            plant_meeting(call, lot)
        case "moved":
            _move(call, lot, lot.structure.choice((1.0, -1.0)))
        case "lowered":
            _move(call, lot, -1.0)
        case "non-finite inputs":
            plant_non_finite(call, lot)
        case "nan":
            _plant_nonfinite(call, lot, (math.nan,))
        case "infinities":
            _plant_nonfinite(call, lot, (math.inf, -math.inf))
        case "carried":
            _plant_nonfinite(call, lot, (math.inf, -math.inf))
            _share_infinities(call, lot)
        case "negative":
            _count_from_the_end(call, lot)
        case "marked":
            _plant(call, lot, lambda lot, _, count: lot.chosen(_marks(lot.case), count), _EVERY, _is_index)
        case _:
            raise UsageError(f"there is no plan '{plan}' for the values of a call.")


def counted_from_the_start(call: DrawnCall) -> list[torch.Tensor]:
    """Storages like those of a call with negative indices, with the indices that these stand for."""
    storages = [tensor.storage.clone() for tensor in call.tensors]
    for tensor, storage in zip(call.tensors, storages, strict=True):
        if isinstance(tensor.recipe.fill, schema.Integers) and _is_index(tensor.recipe):
            # Of the memory, not of the view: one that is expanded cannot be written to.
            storage.copy_(torch.where(storage < 0, storage + tensor.recipe.fill.high, storage))
    return storages


# Which arguments.


def _takes_numbers(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Normal | schema.Uniform | schema.Integers) and (
        operators.torch_dtype(recipe.dtype) in (*_FLOATS, *_SIGNED)
    )


def _is_unbounded(recipe: schema.Tensor) -> bool:
    """Floating, of any value: what states a range means it."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _FLOATS


def _may_be_moved(recipe: schema.Tensor) -> bool:
    """In the bits of bfloat16 nothing would be left of the values; and nothing is wide enough to judge float64 by."""
    movable = operators.torch_dtype(recipe.dtype) in _MOVED_EXPONENTS
    return _is_unbounded(recipe) and movable and math.prod(recipe.shape) > 1


def _is_index(recipe: schema.Tensor) -> bool:
    """Whole numbers as an index may be one."""
    return (
        isinstance(recipe.fill, schema.Integers)
        and recipe.fill.low == 0
        and operators.torch_dtype(recipe.dtype) in _SIGNED
    )


def _marks(case: schema.Case) -> list[float]:
    """Numbers among the arguments that stand for an index: one that is ignored, or that pads."""
    declared = operators.resolve(case.operator)._schema.arguments
    given: dict[str, object] = {a.name: a.default_value for a in declared if a.has_default_value()}
    named = {a.name: value for a, value in zip(declared, case.args, strict=False)} | case.kwargs
    given |= {name: value.value if isinstance(value, schema.Scalar) else None for name, value in named.items()}
    return [float(v) for name, v in given.items() if ("index" in name or "idx" in name) and type(v) is int]


# Which values.


def _numbers(lot: Lot, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """As often one of the case's own numbers, or next to it, as one that is simple."""
    dtype, fill = tensor.view.dtype, tensor.recipe.fill
    own = _within(fill, dtype, _own_numbers(lot.case, dtype))
    zeros = [0.0, 0.0, -0.0, -0.0] if lot.case.operator.split(".")[1] in _ABOUT_SIGNS else [0.0, 0.0, 0.0, 0.0]
    simple = _within(fill, dtype, [0.0, *_SMALL] if lot.once else [*zeros, *_SMALL])
    some = count // 2 if own and simple else count if own else 0
    some += lot.structure.randrange(2) if own and simple and count % 2 else 0
    if lot.once:
        simple = [value for value in simple if value not in own]
    drawn = torch.cat([lot.chosen(own, some), lot.chosen(simple, count - some)])
    return drawn[torch.randperm(len(drawn), generator=lot.values)]


def _own_numbers(case: schema.Case, dtype: torch.dtype) -> list[float]:
    """The case's numbers where the dtype holds them, and their neighbours in it."""
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


def _within(fill: schema.Fill, dtype: torch.dtype, numbers: Sequence[float]) -> list[float]:
    """Those that the recipe allows. Of floats that it bounds, those that its range holds after rounding, too."""
    match fill:
        case schema.Uniform(low=low, high=high):
            return [number for number in numbers if low < number < high]
        case schema.Integers(low=low, high=high):
            return [number for number in numbers if low <= number < high and number.is_integer()]
        case _:
            return list(numbers)


def _hundreds(lot: Lot, tensor: DrawnTensor, count: int) -> torch.Tensor:
    moderate, large = lot.uniform(*_MODERATE, count), lot.uniform(*LARGE, count)
    return torch.where(lot.below(2, count) == 0, moderate, large) * lot.signs(count)


def _complex_hundreds(lot: Lot, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """In one part or in both."""
    return in_parts(lot, _hundreds(lot, tensor, count), _hundreds(lot, tensor, count))


def _magnitudes(lot: Lot, tensor: DrawnTensor, count: int, least: float, top: float, share: float) -> torch.Tensor:
    """Of every order up to a power of two, and half of them of those that are common.

    ``least`` for gradients: by its formula the slope of sinc loses every digit of a tiny argument.
    """
    half, bits = tensor.view.dtype is torch.float16, math.log2(torch.finfo(tensor.view.dtype).max)
    share = _MOST_OF_MAX if tensor.view.dtype is torch.float64 else share  # for its squares there is nothing wider
    most, smallest = bits * (_MOST_OF_HALF if half else share), -bits * (_MOST_OF_HALF if half else _MOST_OF_MAX)
    any_ = lot.uniform(max(smallest, least), min(top, most), count)
    usual = lot.uniform(max(smallest, _USUAL_EXPONENTS[0]), min(top, most, _USUAL_EXPONENTS[1]), count)
    found = torch.exp2(torch.where(lot.below(2, count) == 0, any_, usual))
    low, high = _OVERFLOWS[tensor.view.dtype]
    found = torch.where((found > low) & (found < high), found * (low / high), found)
    return found * lot.signs(count)


def _complex_magnitudes(lot: Lot, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Of every order whose squares are finite, in one part or in both."""
    bits = _MOST_OF_COMPLEX * math.log2(torch.finfo(tensor.view.real.dtype).max)
    parts = (torch.exp2(lot.uniform(-bits, bits, count)) * lot.signs(count) for _ in range(2))
    return in_parts(lot, *parts)


# Where they go.


def _plant(call: DrawnCall, lot: Lot, values: Values, every: int, fits: Callable[[schema.Tensor], bool]) -> None:
    for tensor in call.tensors:
        if tensor.view.numel() and fits(tensor.recipe):
            plant_into(tensor, lot, values, every)


def _put_extremes_at_the_ends(call: DrawnCall, lot: Lot) -> None:
    """Where elements meet: what decides a maximum stands where whole blocks leave it out."""
    if torch.Tag.pointwise not in operators.resolve(call.case.operator).tags:
        for tensor in call.tensors:
            if tensor.view.numel() and _is_unbounded(tensor.recipe):
                place_ends(tensor, lot)


def _plant_nonfinite(call: DrawnCall, lot: Lot, table: Sequence[float]) -> None:
    """Into every tensor where elements meet only one another; elsewhere one spoils many, so into one tensor."""
    tensors = [tensor for tensor in call.tensors if tensor.view.numel() and _is_unbounded(tensor.recipe)]
    if torch.Tag.pointwise not in operators.resolve(call.case.operator).tags:
        tensors = [lot.structure.choice(tensors)]
    for tensor in tensors:
        plant_into(tensor, lot, lambda lot, _, count: lot.chosen(table, count), _EVERY_NONFINITE)


def _count_from_the_end(call: DrawnCall, lot: Lot) -> None:
    for tensor in call.tensors:
        fill = tensor.recipe.fill
        if tensor.view.numel() and isinstance(fill, schema.Integers) and _is_index(tensor.recipe):
            target = elements(tensor)
            places = places_in(target, count_of(target, _EVERY_NEGATIVE), lot)
            target[places] = target[places] - fill.high


def _move(call: DrawnCall, lot: Lot, sign: float) -> None:
    """One of the largest tensors, as a whole: of two that meet, the difference would be as large, and no test."""
    tensors = [tensor for tensor in call.tensors if _may_be_moved(tensor.recipe)]
    most = max(tensor.view.numel() for tensor in tensors)
    tensor = lot.structure.choice([tensor for tensor in tensors if tensor.view.numel() == most])
    deviations = sign * 2.0 ** lot.structure.uniform(*_MOVED_EXPONENTS[tensor.view.dtype])
    tensor.storage.add_(deviations * getattr(tensor.recipe.fill, "std", 1.0))  # the memory: views may overlap


def _share(call: DrawnCall, lot: Lot) -> None:
    """Elements of tensors that meet others of their kind become these, also where the others are broadcast."""
    for pair in itertools.combinations(call.tensors, 2):
        ways = [(one, other) for one, other in (pair, pair[::-1]) if _may_take_from(one, other)]
        if ways:
            one, other = lot.structure.choice(ways)
            target = one.view if one.view.dim() else one.view.view(1)
            places = places_in(target, count_of(target, _EVERY_SHARED), lot)
            target[places] = other.view.expand(target.shape)[places]


def _share_infinities(call: DrawnCall, lot: Lot) -> None:
    """Those of a tensor stand in one that it meets as well: an infinity is compared with its like."""
    for one, other in itertools.combinations(call.tensors, 2):
        if not lot.once and _may_take_from(one, other) and one.view.numel():
            values = other.view.expand(one.view.shape)
            one.view.copy_(torch.where(torch.isinf(values), values, one.view))


def _may_take_from(one: DrawnTensor, other: DrawnTensor) -> bool:
    """Whether values of the other are such as this one may have, and lie opposite to its own."""
    if not one.view.numel() or one.view.dtype != other.view.dtype or overlaps(one.recipe):
        return False
    alike = one.recipe.fill == other.recipe.fill or _is_unbounded(one.recipe)
    return (
        alike
        and _takes_numbers(one.recipe)
        and _takes_numbers(other.recipe)
        and _broadcasts(other.view.shape, one.view.shape)
    )


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    sizes = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(one in (1, other) for one, other in sizes)
