"""Finds where a result is continuous: a gradient or complex result that differs is wrong only there.

Autograd does not define gradients where a slope jumps. At 0 the gradient of relu may be 0, 1 or 1/2, and any of equal
values may be the maximum. Complex functions jump at branch cuts, where the sign of a zero selects the side.

So after a difference, torch is evaluated in float64 at nearby points, on both sides. Each element is moved by another
random step, so that equal values do not stay equal. An element that moves by more than rounding is open: any result is
accepted, unless the movement is proportional to the step. On planted values, results of nearby points are accepted too.

A gradient at a jump may even be NaN or infinite: a norm written as the root of a sum of squares has no gradient at 0.
Another complex result must be finite there, if torch's is finite at the point and near it.

In planted calls with complex results only gross errors count: formulas in honest use (``asin`` by a logarithm) lose
digits of large numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchstone import schema
from torchstone.calls.draw_arguments import DrawnTensor, batched_view
from torchstone.calls.reference_calls import ResultPosition, Tensors, is_continuous
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.forward_part import cotangents
from torchstone.judging.reference.expected import Expected
from torchstone.judging.reference.float64 import exact_results, widened

_STEP = 4.0
"""Mean size of a step, in ``eps`` of the argument's dtype: honest kernels may round by as much before a comparison."""
_SMALLER_STEP = 1 / 16
"""Size of the smaller step, relative to the larger one."""
_PROPORTIONAL_SHARE = 1 / 8
"""A result is proportional to the step if the smaller step changes it by at most this part of the larger step's change.
It then has no jump."""
_SMOOTH_SHARE = 0.25
"""Share of the bound by which a result may move and still count as smooth."""
_GROSS_ERROR = 1 / 16
"""Relative error of a complex result from which it counts as gross."""
_STEADY_CHANGE = 1e-4
"""Relative change of the result that counts as none."""
_STEP_PAIRS = 2
"""Random steps, each tried with both signs."""
_INSTEAD_OF_INFINITY = 2.0**200
"""Stands for infinity: larger than any value of a dtype but float64."""
_SALT = 0x51DE
"""Makes the steps independent of the values that are drawn with the same seed."""


def may_be_discontinuous(expected: Expected) -> bool:
    """Whether results of this call may jump: gradients, and planted calls with complex arguments."""
    call = expected.call
    is_complex = any(tensor.view.is_complex() for tensor in call.tensors)
    return schema.is_gradient(call.case.operator) or (bool(call.planted) and is_complex)


def with_reference_at_jumps(expected: Expected, outputs: Sequence[Any]) -> list[Any] | None:
    """A candidate's outputs, with torch's own in elements that may jump. None: torch has no float64 results."""
    try:
        exact = exact_results(expected.batch.reference.evaluator, expected.call)
        nearby = {share: _nearby_results(expected, share) for share in (1.0, _SMALLER_STEP)}
    except operator_errors():
        return None
    found = list(outputs)
    for place, values in expected.values().items():
        got = outputs[place.position] if place.kind == "output" else None
        if not isinstance(got, torch.Tensor) or not is_continuous(values.native.dtype) or not got.numel():
            continue  # integers and booleans are exact; a written argument is no gradient
        large, small = (_change(exact, nearby[share], place) for share in (1.0, _SMALLER_STEP))
        if large is None or small is None or values.bound is None:
            return None
        if got.shape == values.native.shape and got.dtype == values.native.dtype:
            moves = _Movement(exact[place], values.bound, large, small)
            found[place.position] = torch.where(_may_differ(got, values.native, moves, expected), values.native, got)
    return found


@dataclass(frozen=True, eq=False)
class _Movement:
    """How far one result moves from its exact value at nearby points, and its bound."""

    exact: torch.Tensor
    bound: torch.Tensor
    large: torch.Tensor
    """Largest movement with the larger step."""
    small: torch.Tensor
    """Largest movement with the smaller step."""

    @property
    def smooth(self) -> torch.Tensor:
        return self.large <= _SMOOTH_SHARE * self.bound

    @property
    def in_proportion(self) -> torch.Tensor:
        return (self.small <= _PROPORTIONAL_SHARE * self.large) & torch.isfinite(self.large)

    @property
    def steady(self) -> torch.Tensor:
        """Smooth enough to judge NaN and infinity. Bounds cannot be used for these, since they are wide near a jump."""
        return self.in_proportion | (self.large <= _STEADY_CHANGE * self.exact.abs())


def _may_differ(got: torch.Tensor, native: torch.Tensor, moves: _Movement, expected: Expected) -> torch.Tensor:
    """Elements whose difference does not count, because the result may jump there."""
    off = (got.to(moves.exact.dtype) - moves.exact).abs().nan_to_num(nan=torch.inf)
    allowed = torch.where(torch.isfinite(got), ~moves.smooth & ~moves.in_proportion, ~moves.steady)
    allowed &= torch.isfinite(moves.exact)
    if expected.call.planted:
        allowed |= (~moves.smooth & (off <= 2.0 * moves.large)) | ~torch.isfinite(moves.exact)
        allowed |= off <= (_GROSS_ERROR * moves.exact.abs() if moves.exact.is_complex() else 0.0)
    if schema.is_gradient(expected.call.case.operator):
        return allowed
    always_finite = torch.isfinite(native) & torch.isfinite(moves.large) & torch.isfinite(moves.small)
    return allowed & ~(always_finite & ~torch.isfinite(got))


def _change(exact: Tensors, nearby: Sequence[Tensors], place: ResultPosition) -> torch.Tensor | None:
    """The most that each element moves; infinity if it becomes NaN or infinite. None: the result is missing."""
    if any(place not in each or each[place].shape != exact[place].shape for each in (exact, *nearby)):
        return None
    moved = torch.stack([(each[place] - exact[place]).abs() for each in nearby])
    return moved.amax(0).nan_to_num(nan=torch.inf, posinf=torch.inf)


def _nearby_results(expected: Expected, share: float) -> list[Tensors]:
    """float64 results at nearby points: floating-point arguments are moved by random steps, with both signs.

    ``share``: factor on the size of the steps. Written arguments and a gradient's cotangents do not move.
    """
    call, evaluator = expected.call, expected.batch.reference.evaluator
    generator = torch.Generator().manual_seed((call.seed ^ _SALT) & ((1 << 63) - 1))
    wide, first = widened(call), cotangents(call.case)
    moving = [i >= first and is_continuous(s.dtype) and not evaluator.is_written(i) for i, s in enumerate(wide)]
    found: list[Tensors] = []
    for _ in range(_STEP_PAIRS):
        views = [batched_view(s.unsqueeze(0), t.recipe)[0] for s, t in zip(wide, call.tensors, strict=True)]
        steps = {i: share * _step(call.tensors[i], views[i], generator) for i, moves in enumerate(moving) if moves}
        for sign in (1.0, -1.0):
            moved = [_moved(view, sign * steps[i]) if i in steps else view.clone() for i, view in enumerate(views)]
            found.append(evaluator.float64_call(wide, moved))
    return found


def _moved(view: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The values plus the step. Infinities, as in masks, become huge numbers, so that equal ones move apart too."""
    if view.is_complex():
        return view + step
    return torch.where(torch.isinf(view), view.sign() * _INSTEAD_OF_INFINITY, view) + step


def _step(tensor: DrawnTensor, view: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """By how much each element is moved: relative to its magnitude, or for a zero to the standard deviation."""
    usual = getattr(tensor.recipe.fill, "std", 1.0) or 1.0
    magnitude = torch.where(view == 0, usual, view.abs())
    magnitude = torch.where(torch.isfinite(magnitude), magnitude, _INSTEAD_OF_INFINITY)
    drawn = [_random_steps(view.shape, generator).to(view.device) for _ in range(2 if view.is_complex() else 1)]
    parts = torch.complex(*drawn) if view.is_complex() else drawn[0]
    return parts * magnitude * (_STEP * torch.finfo(tensor.view.dtype).eps)


def _random_steps(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Random numbers between 1/2 and 3/2, of either sign, so that equal values do not stay equal."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0
    return (drawn + 0.5) * signs
