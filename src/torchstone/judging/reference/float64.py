"""Evaluates one call in float64, and estimates how strongly its results depend on its inputs.

Slope: every floating-point input element moves by 2**-24 of itself, up or down at random. The slope of a result is its
own movement, divided by 2**-24. It is a central difference, so that jumps (floor, sign, near ties) can be told from
slopes. Rounding errors of a kernel move a result in the same way, so bounds are computed from the slope.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, batched_view
from torchstone.calls.reference_calls import (
    Evaluator,
    ResultPosition,
    Tensors,
    inside_view,
    is_continuous,
    stacked,
    wide_dtype,
)
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.forward_part import cotangents
from torchstone.judging.plans.one_magnitude import exists_for_precision

STEP = 2.0**-24
"""Relative step of the differences: far above float64's noise, far below where curvature shows."""
FEW_ELEMENTS = 1 << 14
"""Calls with up to this many elements are probed with three pairs of steps: they have few neighbours to learn from."""
MANY_ELEMENTS = 1 << 16
"""Calls with more elements than this are probed with one pair of steps; calls between the two limits with two."""
LARGE_ELEMENTS = 1 << 22
"""Calls with more elements than this are probed with one float64 copy of their arguments at a time, to save memory."""
CLOSE_PAIRS = 16
"""Pairs of steps before a small call is judged wrong. With 3 pairs the slope hides a cancellation with p = 1/8."""
PIECE_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Elements of a large tensor that are processed at a time: limits temporaries, on the CPU to the size of the cache."""
_SALT = 0x5EED
"""Makes the steps independent of the values that are drawn with the same seed."""
_SCALAR_PAIRS = 4
"""Pairs of steps for a call without tensors, whose scalars are moved."""
_REAL_NUMBER_TYPES = ("number", "float", "Scalar")
"""Schema types of scalar arguments that are real numbers, not counts."""

Evaluate = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Tensors]
"""A function from the storages and views of all arguments to the results."""


@dataclass(frozen=True, eq=False)
class Float64Probe:
    """Exact value and slope of one result of one call."""

    exact: torch.Tensor
    """In float64 or complex128, on the rounded inputs of the case."""
    slope: torch.Tensor
    """float64, same shape. Root mean square over the pairs of steps; 0 at a jump, at NaN and at infinity."""


_MOST_CANCELLED_MAGNITUDE = 4.0
"""Largest magnitude of an argument for which :func:`allow_cancellation` raises a slope in proportion."""
_CANCELLED_SHARE = 0.125
"""Least slope in :func:`allow_cancellation`, relative to the argument."""
_ROUNDED_SHARE = 0.25
"""Least slope in :func:`allow_rounded_results`, relative to the cotangent."""


def exact_results(evaluator: Evaluator, call: DrawnCall) -> Tensors:
    """Every result, floating-point ones as float64. Raises torch's error if the operator does not run in float64."""
    return _exact(evaluator, widened(call))


def _exact(evaluator: Evaluator, wide: Sequence[torch.Tensor]) -> Tensors:
    private = [s.clone() if evaluator.is_written(i) else s for i, s in enumerate(wide)]
    return evaluator.float64_call(private, _views(evaluator, private))


def probe(evaluator: Evaluator, call: DrawnCall, *, closely: bool = False) -> dict[ResultPosition, Float64Probe]:
    """Exact value and slope of every floating-point result. ``closely``: use CLOSE_PAIRS pairs for small calls.

    Raises torch's error if the operator does not run in float64.
    """
    wide = widened(call)
    exact = _exact(evaluator, wide)
    is_large = sum(t.numel() for t in [*wide, *exact.values()]) > LARGE_ELEMENTS
    wide = [] if is_large else wide  # each copy is made again when it is needed
    exact = {place: tensor for place, tensor in exact.items() if tensor.dtype in (torch.float64, torch.complex128)}
    slopes = {place: torch.zeros(t.shape, dtype=torch.float64, device=t.device) for place, t in exact.items()}
    if exact and any(is_continuous(tensor.storage.dtype) and tensor.storage.numel() for tensor in call.tensors):
        if is_large:
            _add_slopes_in_turn(evaluator, call, exact, slopes)
        else:
            _add_slopes(evaluator, call, wide, exact, slopes, closely)
        allow_cancellation(evaluator, wide or [tensor.storage for tensor in call.tensors], exact, slopes)
        if schema.is_gradient(evaluator.case.operator):
            allow_rounded_results(evaluator, wide or widened(call), slopes)
    elif exact and not call.tensors:
        _add_slopes_of_scalars(evaluator, call, exact, slopes)
    return {place: Float64Probe(tensor, slopes[place]) for place, tensor in exact.items()}


def allow_cancellation(evaluator: Evaluator, wide: Sequence[torch.Tensor], exact: Tensors, slopes: Tensors) -> None:
    """Raise slopes where a pointwise function of one tensor may compute a small result from larger, rounded numbers.

    ``gelu(-3)`` is -0.004, the difference of two numbers near 1.5, whose rounding the slope does not show. Functions do
    not cancel far from 0, so there is a limit. Functions that exist for their precision (``log1p``) are left out.
    """
    pointwise = operators.traits(evaluator.case.operator).pointwise
    if not pointwise or len(wide) != 1 or exists_for_precision(evaluator.case.operator):
        return
    values = _views(evaluator, wide)[0]
    for place, slope in slopes.items():
        if slope.shape == values.shape and not slope.is_complex() and not _is_magnitude(slope, exact[place]):
            raised = slope.reshape(-1)
            _raise_to_cancelled(raised, values.reshape(-1))
            if not slope.is_contiguous():  # then reshape made a copy
                slope.copy_(raised.view(slope.shape))


def _is_magnitude(slope: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether every slope equals the magnitude of its result: then the operator only moves or scales values."""
    flat, e = slope.reshape(-1), exact.reshape(-1)
    return all(
        bool(torch.isclose(flat[piece], e[piece].abs().to(slope.dtype), rtol=1e-6, atol=0.0).all())
        for piece in pieces(flat.numel(), flat.device)
    )


def _raise_to_cancelled(slope: torch.Tensor, values: torch.Tensor) -> None:
    """Raise the flat ``slope`` in place, according to the arguments ``values``. A slope of 0 (a jump) stays 0."""
    for piece in pieces(slope.numel(), slope.device):
        magnitude = _widened(values[piece]).abs().clamp_(max=_MOST_CANCELLED_MAGNITUDE).mul_(_CANCELLED_SHARE)
        part = slope[piece]
        part.copy_(torch.where(part > 0, torch.maximum(part, magnitude), part))


def allow_rounded_results(evaluator: Evaluator, wide: Sequence[torch.Tensor], slopes: Tensors) -> None:
    """Raise slopes of gradients in proportion to the cotangent: honest kernels compute them from rounded results.

    ``g * (1 - y * y)`` cancels where y is nearly 1. The slope with respect to the arguments does not show y's rounding.
    """
    case = evaluator.case
    if not schema.is_gradient(case.operator):
        return
    listed = case.args[0]
    results = len(listed.items) if isinstance(listed, schema.Sequence) else 0
    cotangent_views = _views(evaluator, wide)[: cotangents(case)]
    for place, slope in slopes.items():
        alike = [each.abs() for each in cotangent_views if each.shape == slope.shape and not each.is_complex()]
        if place.kind == "output" and place.position >= results and alike and not slope.is_complex():
            floor = torch.stack(alike).amax(dim=0).mul_(_ROUNDED_SHARE)
            slope.copy_(torch.where(slope > 0, torch.maximum(slope, floor), slope))


def pieces(elements: int, device: torch.device, rows: int = 1) -> list[slice]:
    """Slices of a flat tensor, or of the columns of one with several rows: each of at most the size for the device."""
    size = piece_elements(device)
    if device.type == "cpu":  # a device has memory for temporaries of several rows, and each piece costs launches
        size = max(1, size // max(1, rows))
    return [slice(start, min(start + size, elements)) for start in range(0, elements, size)]


def piece_elements(device: torch.device) -> int:
    """How many elements to process at a time on this device."""
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
    steps = list(steps_apart(evaluator, _moved_both_ways(evaluator, call, wide, pairs, STEP), evaluator.float64_call))
    for place, tensor in exact.items():
        sides = both_sides(steps, place, tensor)
        if sides is not None:
            _set_slope(slopes[place], sides[0], tensor, sides[1], 1.0 / pairs)


def _add_slopes_in_turn(evaluator: Evaluator, call: DrawnCall, exact: Tensors, slopes: Tensors) -> None:
    """:func:`_add_slopes` for a large call: one pair, and only one float64 copy of its arguments at a time."""
    generator = _generator(call)
    directions = [
        _first_directions(evaluator, position, tensor.storage, generator)
        for position, tensor in enumerate(call.tensors)
    ]
    sides = [
        _results(
            evaluator,
            [_moved_one_way(evaluator, i, t.storage, directions[i], ahead=ahead) for i, t in enumerate(call.tensors)],
            evaluator.float64_call,
        )
        for ahead in (True, False)
    ]
    for place, tensor in exact.items():
        found = both_sides([(sides[0], sides[1])], place, tensor)
        for side in sides:
            side.pop(place, None)
        if found is not None:
            _set_slope(slopes[place], found[0], tensor, found[1], 1.0)


def _first_directions(
    evaluator: Evaluator, position: int, storage: torch.Tensor, generator: torch.Generator
) -> torch.Tensor | None:
    """For each value of an argument, flat: whether it moves up in the first step. None: the argument does not move."""
    if not is_continuous(storage.dtype):
        return None
    values = storage if evaluator.is_written(position) else _view(evaluator, position, storage)
    return _coin_flips((1, *values.shape), generator).reshape(-1)


def _moved_one_way(
    evaluator: Evaluator, position: int, storage: torch.Tensor, directions: torch.Tensor | None, *, ahead: bool
) -> torch.Tensor:
    """One moved copy of an argument, as :func:`_moved` makes several, but in place and piece by piece."""
    written = evaluator.is_written(position)
    wide = _widened(storage)
    values = wide if written else _view(evaluator, position, wide)
    if directions is None:
        return values
    values = values.contiguous()  # copies only if the strides require it
    inside = inside_view(evaluator, position, storage).reshape(-1) if written else None
    flat = values.view(-1)
    for piece in pieces(flat.numel(), flat.device):
        steps = directions[piece].to(torch.float64).mul_(2.0 * STEP).sub_(STEP)
        if inside is not None:
            steps.mul_(inside[piece])
        steps.add_(1.0)
        flat[piece].mul_(steps if ahead else steps.neg_().add_(2.0))
    return values


def _add_slopes_of_scalars(evaluator: Evaluator, call: DrawnCall, exact: Tensors, slopes: Tensors) -> None:
    """Slopes of results that depend on scalars only (``linspace``): the scalars are moved instead of tensors."""
    random_ = random.Random(call.seed)
    steps: list[tuple[Tensors, Tensors]] = []
    for _ in range(_SCALAR_PAIRS):
        seed = random_.getrandbits(63)
        try:
            steps.append(
                (_results_of_moved_scalars(evaluator, seed, STEP), _results_of_moved_scalars(evaluator, seed, -STEP))
            )
        except operator_errors():
            continue
    for place, tensor in exact.items():
        sides = both_sides(steps, place, tensor)
        if sides is not None:
            _set_slope(slopes[place], sides[0], tensor, sides[1], 1.0 / len(sides[0]))


def _results_of_moved_scalars(evaluator: Evaluator, seed: int, step: float) -> Tensors:
    random_ = random.Random(seed)
    declared = {argument.name: str(argument.type) for argument in evaluator.operator._schema.arguments}

    def moved(name: str, argument: schema.Argument) -> schema.Argument:
        if not isinstance(argument, schema.Scalar) or declared.get(name) not in _REAL_NUMBER_TYPES:
            return argument
        if isinstance(argument.value, bool) or not isinstance(argument.value, int | float):
            return argument
        return schema.Scalar(argument.value * (1.0 + random_.choice((step, -step))))

    case, device = evaluator.case, evaluator.arithmetic_device
    args = tuple(moved(name, argument) for name, argument in zip(declared, case.args, strict=False))
    kwargs = {name: moved(name, argument) for name, argument in case.kwargs.items()}
    return Evaluator(msgspec.structs.replace(case, args=args, kwargs=kwargs), device).float64_call([], [])


def pairs_for(elements: int, *, closely: bool) -> int:
    """How many pairs of steps to probe a call of this many elements with."""
    if elements <= FEW_ELEMENTS:
        return CLOSE_PAIRS if closely else 3
    return 2 if elements <= MANY_ELEMENTS else 1


Rows = Sequence[Sequence[torch.Tensor]]
"""All arguments, moved: one row for each pair, then one for each pair with the opposite steps."""


def _moved_both_ways(
    evaluator: Evaluator, call: DrawnCall, wide: Sequence[torch.Tensor], pairs: int, step: float
) -> Rows:
    generator = _generator(call)
    columns = [_moved(evaluator, position, storage, pairs, step, generator) for position, storage in enumerate(wide)]
    return list(zip(*columns, strict=True))


def widened(call: DrawnCall) -> list[torch.Tensor]:
    """Private copies of the call's storages, floating-point ones as float64."""
    return [_widened(tensor.storage) for tensor in call.tensors]


def moved_natively(
    evaluator: Evaluator, call: DrawnCall, wide: Sequence[torch.Tensor], pairs: int, step: float
) -> Rows:
    """The call's own values, moved and then rounded to their dtypes."""
    dtypes = [tensor.storage.dtype for tensor in call.tensors]
    rows = _moved_both_ways(evaluator, call, wide, pairs, step)
    return [[moved.to(dtype) for moved, dtype in zip(row, dtypes, strict=True)] for row in rows]


def steps_apart(evaluator: Evaluator, rows: Rows, evaluate: Evaluate) -> Iterator[tuple[Tensors, Tensors]]:
    """For each pair, the results with all elements moved by steps of random sign, and moved by the opposite steps."""
    pairs = len(rows) // 2
    for ahead, behind in zip(rows[:pairs], rows[pairs:], strict=True):
        yield _results(evaluator, ahead, evaluate), _results(evaluator, behind, evaluate)


def both_sides(
    steps: Sequence[tuple[Tensors, Tensors]], place: ResultPosition, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """One result of each pair that has it on both sides, stacked: ahead and behind. None if no pair has it."""
    results = [(ahead.get(place), behind.get(place)) for ahead, behind in steps]
    usable = [(a, b) for a, b in results if a is not None and b is not None and a.shape == b.shape == like.shape]
    return (stacked([a for a, _ in usable]), stacked([b for _, b in usable])) if usable else None


def _results(evaluator: Evaluator, moved: Sequence[torch.Tensor], evaluate: Evaluate) -> Tensors:
    """The results for moved arguments. Empty if torch raises because they leave the operator's domain."""
    views = [_view(evaluator, i, m) if evaluator.is_written(i) else m for i, m in enumerate(moved)]
    try:
        return evaluate(moved, views)
    except operator_errors():
        return {}


def _moved(
    evaluator: Evaluator,
    position: int,
    storage: torch.Tensor,
    pairs: int,
    step: float,
    generator: torch.Generator,
) -> Sequence[torch.Tensor]:
    """One argument, moved one way for each pair, then the other way: a storage if it is written, else dense values.

    In arguments that are only read, each element of the *view* moves independently, because a kernel that reads an
    expanded element twice makes independent errors with it. Written ones are moved in their storage, inside the view.
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


def _generator(call: DrawnCall) -> torch.Generator:
    return torch.Generator(call.device).manual_seed((call.seed ^ _SALT) & ((1 << 63) - 1))


def _coin_flips(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Random booleans. Each drawn 64-bit integer gives eight, one for each byte."""
    count = math.prod(shape)
    words = torch.empty(count // 8 + 1, dtype=torch.int64, device=generator.device)
    words.random_(-(1 << 63), None, generator=generator)
    return (words.view(torch.int8)[:count] < 0).reshape(shape)


def _set_slope(
    slope: torch.Tensor, ahead: torch.Tensor, exact: torch.Tensor, behind: torch.Tensor, weight: float
) -> None:
    """Write to ``slope`` how far one result moves per relative step of the arguments, from pairs of opposite steps.

    A pair counts as 0 where its changes ``ahead - exact`` and ``behind - exact`` are not nearly opposite: at a jump.
    """
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
