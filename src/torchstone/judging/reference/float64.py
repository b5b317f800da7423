"""One call in float64, and how strongly its results depend on its inputs.

The slope of a result is its movement when every float input element moves by a share of itself, up or down at random.
It is a central difference, so that jumps (floor, sign, near ties) differ from slopes. Rounding errors of a kernel act
on a result in the same way, which is why bounds are built on the slope.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.drawing import DrawnCall, batched_view
from torchstone.calls.evaluation import (
    OPERATOR_ERRORS,
    Evaluator,
    ResultPosition,
    Tensors,
    inside_view,
    is_continuous,
    stacked,
    wide_dtype,
)
from torchstone.judging.plans.forward_part import cotangents
from torchstone.judging.plans.one_magnitude import is_for_its_digits

STEP = 2.0**-24
"""Relative step of the differences: far above float64's noise, far below where curvature shows."""
FEW_ELEMENTS = 1 << 14
"""Calls up to this size are probed with three pairs of steps, for want of neighbours that tell the scale."""
MANY_ELEMENTS = 1 << 16
"""Calls above are probed with one pair; two in between."""
CLOSE_PAIRS = 16
"""Before a small call is said to be wrong. Two terms that cancel move together in all of three pairs one time in eight,
and then look as if they did not cancel."""
PIECE_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Elements that are worked on at a time where there are many: temporaries stay in the cache, or in bounds."""
_SALT = 0x5EED
_PAIRS_OF_NUMBERS = 4
_NUMBERS = ("number", "float", "Scalar")
"""Types of arguments that are numbers, and not how many of something there are."""

Evaluate = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Tensors]
"""Storages and views of all arguments -> results."""


@dataclass(frozen=True, eq=False)
class Float64Probe:
    """One result of one call."""

    exact: torch.Tensor
    """In float64 or complex128, on the rounded inputs of the case."""
    slope: torch.Tensor
    """float64, same shape. Root mean square over the pairs of steps; 0 where there is a jump, or no number."""


_LARGEST_CANCELLED = 4.0
_CANCELLED_SHARE = 0.125
_ROUNDED_SHARE = 0.25


def exact_results(evaluator: Evaluator, call: DrawnCall) -> Tensors:
    """Every result, floats as float64. torch's errors come out where the operator does not run in it."""
    return _exact(evaluator, widened(call))


def _exact(evaluator: Evaluator, wide: Sequence[torch.Tensor]) -> Tensors:
    private = [s.clone() if evaluator.is_written(i) else s for i, s in enumerate(wide)]
    return evaluator.wide(private, _views(evaluator, private))


def probe(evaluator: Evaluator, call: DrawnCall, *, closely: bool = False) -> dict[ResultPosition, Float64Probe]:
    """Every result that is continuous in float64. torch's errors come out where the operator does not run in it."""
    wide = widened(call)
    exact = _exact(evaluator, wide)
    exact = {place: tensor for place, tensor in exact.items() if tensor.dtype in (torch.float64, torch.complex128)}
    slopes = {place: torch.zeros(t.shape, dtype=torch.float64, device=t.device) for place, t in exact.items()}
    if exact and any(is_continuous(storage.dtype) and storage.numel() for storage in wide):
        _add_slopes(evaluator, call, wide, exact, slopes, closely)
        allow_cancellation(evaluator, wide, exact, slopes)
        allow_rounded_results(evaluator, wide, slopes)
    elif exact and not wide:
        _add_slopes_of_numbers(evaluator, call, exact, slopes)
    return {place: Float64Probe(tensor, slopes[place]) for place, tensor in exact.items()}


def allow_cancellation(evaluator: Evaluator, wide: Sequence[torch.Tensor], exact: Tensors, slopes: Tensors) -> None:
    """Where a function of one tensor is computed through larger numbers, their rounding stays in the small result.

    ``gelu(-3)`` is -0.004, the difference of two numbers near 1.5: honest kernels differ there by a rounding of those,
    which the slope does not show. Up to a size only: what is far larger than 1 is not where functions cancel. Not where
    a function is there to be right in spite of that.
    """
    pointwise = operators.traits(evaluator.case.operator).pointwise
    if not pointwise or len(wide) != 1 or is_for_its_digits(evaluator.case.operator):
        return
    magnitude = _views(evaluator, wide)[0].abs().clamp_(max=_LARGEST_CANCELLED).mul_(_CANCELLED_SHARE)
    for place, slope in slopes.items():
        moved = torch.isclose(slope, exact[place].abs().to(slope.dtype), rtol=1e-6, atol=0.0).all()
        if slope.shape == magnitude.shape and not slope.is_complex() and not bool(moved):
            slope.copy_(torch.where(slope > 0, torch.maximum(slope, magnitude), slope))  # a jump stays a jump


def allow_rounded_results(evaluator: Evaluator, wide: Sequence[torch.Tensor], slopes: Tensors) -> None:
    """Where a gradient is computed from results that were rounded, as honest kernels do that keep these, a rounding of
    the cotangent is lost.

    ``y * (g - (g * y).sum())`` and ``g * (1 - y * y)`` are differences of nearly equal numbers where y is nearly 1. How
    the gradient moves with the arguments does not show it.
    """
    case = evaluator.case
    if not schema.is_gradient(case.operator):
        return
    listed = case.args[0]
    results = len(listed.items) if isinstance(listed, schema.Sequence) else 0
    counted = _views(evaluator, wide)[: cotangents(case)]
    for place, slope in slopes.items():
        alike = [each.abs() for each in counted if each.shape == slope.shape and not each.is_complex()]
        if place.kind == "output" and place.position >= results and alike and not slope.is_complex():
            floor = torch.stack(alike).amax(dim=0).mul_(_ROUNDED_SHARE)
            slope.copy_(torch.where(slope > 0, torch.maximum(slope, floor), slope))


def pieces(elements: int, device: torch.device) -> list[slice]:
    """A flat tensor cut into stretches of a size that suits the device."""
    size = piece_elements(device)
    return [slice(start, min(start + size, elements)) for start in range(0, elements, size)]


def piece_elements(device: torch.device) -> int:
    """How many elements to work on at a time."""
    return PIECE_ELEMENTS.get(device.type, PIECE_ELEMENTS["cpu"])


def _add_slopes(
    evaluator: Evaluator,
    call: DrawnCall,
    wide: Sequence[torch.Tensor],
    exact: Tensors,
    slopes: Tensors,
    closely: bool,
) -> None:
    pairs = pairs_for(sum(t.numel() for t in [*wide, *exact.values()]), closely=closely)
    steps = list(steps_apart(evaluator, _moved_both_ways(evaluator, call, wide, pairs, STEP), evaluator.wide))
    for place, tensor in exact.items():
        sides = both_sides(steps, place, tensor)
        if sides is not None:
            _set_slope(slopes[place], sides[0], tensor, sides[1], 1.0 / pairs)


def _add_slopes_of_numbers(evaluator: Evaluator, call: DrawnCall, exact: Tensors, slopes: Tensors) -> None:
    """Of what is made of nothing but numbers (``linspace``): these are moved, for want of tensors."""
    random_ = random.Random(call.seed)
    steps: list[tuple[Tensors, Tensors]] = []
    for _ in range(_PAIRS_OF_NUMBERS):
        seed = random_.getrandbits(63)
        try:
            steps.append((_with_numbers_moved(evaluator, seed, STEP), _with_numbers_moved(evaluator, seed, -STEP)))
        except OPERATOR_ERRORS:
            continue
    for place, tensor in exact.items():
        sides = both_sides(steps, place, tensor)
        if sides is not None:
            _set_slope(slopes[place], sides[0], tensor, sides[1], 1.0 / len(sides[0]))


def _with_numbers_moved(evaluator: Evaluator, seed: int, step: float) -> Tensors:
    random_ = random.Random(seed)
    declared = {argument.name: str(argument.type) for argument in evaluator.operator._schema.arguments}

    def moved(name: str, argument: schema.Argument) -> schema.Argument:
        if not isinstance(argument, schema.Scalar) or declared.get(name) not in _NUMBERS:
            return argument
        if isinstance(argument.value, bool) or not isinstance(argument.value, int | float):
            return argument
        return schema.Scalar(argument.value * (1.0 + random_.choice((step, -step))))

    case = evaluator.case
    args = tuple(moved(name, argument) for name, argument in zip(declared, case.args, strict=False))
    kwargs = {name: moved(name, argument) for name, argument in case.kwargs.items()}
    return Evaluator(msgspec.structs.replace(case, args=args, kwargs=kwargs), evaluator.desk).wide([], [])


def pairs_for(elements: int, *, closely: bool) -> int:
    """How many pairs of steps a call of this size is probed with."""
    if elements <= FEW_ELEMENTS:
        return CLOSE_PAIRS if closely else 3
    return 2 if elements <= MANY_ELEMENTS else 1


Rows = Sequence[Sequence[torch.Tensor]]
"""Every argument of a call, moved: one way for each pair, then the other way in the same order."""


def _moved_both_ways(
    evaluator: Evaluator, call: DrawnCall, wide: Sequence[torch.Tensor], pairs: int, step: float
) -> Rows:
    generator = torch.Generator(call.device).manual_seed((call.seed ^ _SALT) & ((1 << 63) - 1))
    columns = [_moved(evaluator, position, storage, pairs, step, generator) for position, storage in enumerate(wide)]
    return list(zip(*columns, strict=True))


def widened(call: DrawnCall) -> list[torch.Tensor]:
    """Private copies of the call's storages; floats as float64."""
    return [_widened(tensor.storage) for tensor in call.tensors]


def moved_natively(
    evaluator: Evaluator, call: DrawnCall, wide: Sequence[torch.Tensor], pairs: int, step: float
) -> Rows:
    """The call's own values moved, and rounded to their dtypes again."""
    dtypes = [tensor.storage.dtype for tensor in call.tensors]
    rows = _moved_both_ways(evaluator, call, wide, pairs, step)
    return [[moved.to(dtype) for moved, dtype in zip(row, dtypes, strict=True)] for row in rows]


def steps_apart(evaluator: Evaluator, rows: Rows, evaluate: Evaluate) -> Iterator[tuple[Tensors, Tensors]]:
    """Per pair, the results with all float elements moved by a step of random sign, and with all moved back."""
    pairs = len(rows) // 2
    for ahead, behind in zip(rows[:pairs], rows[pairs:], strict=True):
        yield _results(evaluator, ahead, evaluate), _results(evaluator, behind, evaluate)


def both_sides(
    steps: Sequence[tuple[Tensors, Tensors]], place: ResultPosition, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """One result of all pairs that have it on both sides, stacked; None if none has."""
    results = [(ahead.get(place), behind.get(place)) for ahead, behind in steps]
    usable = [(a, b) for a, b in results if a is not None and b is not None and a.shape == b.shape == like.shape]
    return (stacked([a for a, _ in usable]), stacked([b for _, b in usable])) if usable else None


def _results(evaluator: Evaluator, moved: Sequence[torch.Tensor], evaluate: Evaluate) -> Tensors:
    """Nothing where the moved inputs leave the operator's domain: then no slope is known."""
    views = [_view(evaluator, i, m) if evaluator.is_written(i) else m for i, m in enumerate(moved)]
    try:
        return evaluate(moved, views)
    except OPERATOR_ERRORS:
        return {}


def _moved(
    evaluator: Evaluator,
    position: int,
    storage: torch.Tensor,
    pairs: int,
    step: float,
    generator: torch.Generator,
) -> Sequence[torch.Tensor]:
    """One argument moved one way for every pair, then the other way: a storage if it is written, else dense values.

    Arguments that are only read are moved element by element of the *view*, because a kernel that reads an expanded
    element twice makes independent errors with it. Written ones are moved in their storage, inside the view.
    """
    written = evaluator.is_written(position)
    values = storage if written else _view(evaluator, position, storage)
    if not is_continuous(storage.dtype):
        return [values.clone() if written else values for _ in range(2 * pairs)]
    steps = _coin_flips((pairs, *values.shape), generator).to(torch.float64).mul_(2.0 * step).sub_(step)
    if written:
        steps.mul_(inside_view(evaluator, position, storage))
    moved = torch.empty((2 * pairs, *values.shape), dtype=values.dtype, device=values.device)
    torch.mul(values, steps.add_(1.0), out=moved[:pairs])
    torch.mul(values, steps.neg_().add_(2.0), out=moved[pairs:])
    return moved.unbind(0)


def _coin_flips(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Random booleans; eight from each drawn integer, one per byte."""
    count = math.prod(shape)
    words = torch.empty(count // 8 + 1, dtype=torch.int64, device=generator.device)
    words.random_(-(1 << 63), None, generator=generator)
    return (words.view(torch.int8)[:count] < 0).reshape(shape)


def _set_slope(
    slope: torch.Tensor, ahead: torch.Tensor, exact: torch.Tensor, behind: torch.Tensor, weight: float
) -> None:
    """Where the two one-sided differences of a pair do not mirror each other there is a jump, and nothing is added."""
    pairs = ahead.shape[0]
    flat, e, a, b = slope.view(-1), exact.reshape(-1), ahead.reshape(pairs, -1), behind.reshape(pairs, -1)
    for piece in pieces(e.numel(), e.device):
        odd = (a[:, piece] - b[:, piece]).abs()
        even = (a[:, piece] - e[piece]).add_(b[:, piece]).sub_(e[piece]).abs()
        each = (odd * (even <= 0.5 * odd)).mul_(0.5 / STEP).nan_to_num_(nan=0.0, posinf=0.0)
        flat[piece] = each.square_().sum(dim=0).mul_(weight).sqrt_()


def _views(evaluator: Evaluator, storages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [_view(evaluator, position, storage) for position, storage in enumerate(storages)]


def _view(evaluator: Evaluator, position: int, storage: torch.Tensor) -> torch.Tensor:
    return batched_view(storage.unsqueeze(0), evaluator.recipes[position])[0]


def _widened(storage: torch.Tensor) -> torch.Tensor:
    return storage.to(wide_dtype(storage.dtype) if is_continuous(storage.dtype) else storage.dtype, copy=True)
