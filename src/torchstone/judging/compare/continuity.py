"""Finds where a result is continuous: a gradient or complex result that differs is wrong only there.

Autograd promises nothing where a slope jumps: at 0 the gradient of relu is 0, 1 or 1/2, and of equal values any may
be the maximum. Complex functions jump at their cuts, on the side that the sign of a zero tells.

So after a difference, torch is evaluated in float64 a little beside the values: on both sides, and with any two of
them moved by different steps. An element that moves by more than rounding is open, unless it moves in proportion to
the step. On planted values every answer that a point beside gives is open too.

For a gradient at a jump even finiteness is open: the root of a sum of squares, a norm as people write it, has no
gradient at 0. A complex function's own result is finite there if torch's is, on all sides.

Of complex results only gross errors count: formulas in honest use (``asin`` by a logarithm) lose digits of large
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchstone import schema
from torchstone.calls.random_arguments import DrawnTensor, batched_view
from torchstone.calls.reference_calls import ResultPosition, Tensors, is_continuous
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.forward_part import cotangents
from torchstone.judging.reference.expected import Expected
from torchstone.judging.reference.float64 import exact_results, widened

_STEP = 4.0
"""Size of a step, in roundings of the argument's dtype: what honest kernels round on the way to a comparison."""
_SMALLER = 1 / 16
_IN_PROPORTION = 1 / 8
"""A change with the smaller step that is no more than this part of the other is no jump."""
_SHARE = 0.25
"""Share of the bound by which a result may move and still count as smooth."""
_GROSS = 1 / 16
_STEADY = 1e-4
"""Relative change of the result that counts as none."""
_PAIRS = 2
_FAR = 2.0**200
"""Beyond what any dtype but float64 holds."""
_SALT = 0x51DE


def may_jump(expected: Expected) -> bool:
    """Whether differences count only where results do not jump: in gradients, and in planted calls with complex
    input.
    """
    call = expected.call
    is_complex = any(tensor.view.is_complex() for tensor in call.tensors)
    return schema.is_gradient(call.case.operator) or (bool(call.planted) and is_complex)


def as_far_as_smooth(expected: Expected, outputs: Sequence[Any]) -> list[Any] | None:
    """A candidate's outputs, with torch's own where a jump leaves them open. None: torch cannot say where."""
    try:
        exact = exact_results(expected.batch.reference.evaluator, expected.call)
        beside = {share: _beside(expected, share) for share in (1.0, _SMALLER)}
    except operator_errors():
        return None
    found = list(outputs)
    for place, values in expected.values().items():
        got = outputs[place.position] if place.kind == "output" else None
        if not isinstance(got, torch.Tensor) or not is_continuous(values.native.dtype) or not got.numel():
            continue  # whole numbers and booleans are exact; what is written is no gradient
        large, small = (_change(exact, beside[share], place) for share in (1.0, _SMALLER))
        if large is None or small is None or values.bound is None:
            return None
        if got.shape == values.native.shape and got.dtype == values.native.dtype:
            moves = _Moves(exact[place], values.bound, large, small)
            found[place.position] = torch.where(_open(got, values.native, moves, expected), values.native, got)
    return found


@dataclass(frozen=True, eq=False)
class _Moves:
    """How far one result moves from its exact value, and how far it may."""

    exact: torch.Tensor
    bound: torch.Tensor
    large: torch.Tensor
    small: torch.Tensor
    """With the smaller step."""

    @property
    def smooth(self) -> torch.Tensor:
        return self.large <= _SHARE * self.bound

    @property
    def in_proportion(self) -> torch.Tensor:
        return (self.small <= _IN_PROPORTION * self.large) & torch.isfinite(self.large)

    @property
    def steady(self) -> torch.Tensor:
        """Smooth enough to judge NaN or infinity, to which bounds do not apply: next to a jump they are wide."""
        return self.in_proportion | (self.large <= _STEADY * self.exact.abs())


def _open(got: torch.Tensor, native: torch.Tensor, moves: _Moves, expected: Expected) -> torch.Tensor:
    off = (got.to(moves.exact.dtype) - moves.exact).abs().nan_to_num(nan=torch.inf)
    open_ = torch.where(torch.isfinite(got), ~moves.smooth & ~moves.in_proportion, ~moves.steady)
    open_ &= torch.isfinite(moves.exact)
    if expected.call.planted:
        open_ |= (~moves.smooth & (off <= 2.0 * moves.large)) | ~torch.isfinite(moves.exact)
        open_ |= off <= (_GROSS * moves.exact.abs() if moves.exact.is_complex() else 0.0)
    if schema.is_gradient(expected.call.case.operator):
        return open_
    always_a_number = torch.isfinite(native) & torch.isfinite(moves.large) & torch.isfinite(moves.small)
    return open_ & ~(always_a_number & ~torch.isfinite(got))


def _change(exact: Tensors, beside: Sequence[Tensors], place: ResultPosition) -> torch.Tensor | None:
    """How far a result moves at most; infinity where it becomes NaN or infinite. None: the result is missing."""
    if any(place not in each or each[place].shape != exact[place].shape for each in (exact, *beside)):
        return None
    moved = torch.stack([(each[place] - exact[place]).abs() for each in beside])
    return moved.amax(0).nan_to_num(nan=torch.inf, posinf=torch.inf)


def _beside(expected: Expected, share: float) -> list[Tensors]:
    """Results in float64 with all floating-point arguments moved a little, one way and the other."""
    call, evaluator = expected.call, expected.batch.reference.evaluator
    generator = torch.Generator().manual_seed((call.seed ^ _SALT) & ((1 << 63) - 1))
    wide, first = widened(call), cotangents(call.case)
    moving = [i >= first and is_continuous(s.dtype) and not evaluator.is_written(i) for i, s in enumerate(wide)]
    found: list[Tensors] = []
    for _ in range(_PAIRS):
        views = [batched_view(s.unsqueeze(0), t.recipe)[0] for s, t in zip(wide, call.tensors, strict=True)]
        steps = {i: share * _step(call.tensors[i], views[i], generator) for i, moves in enumerate(moving) if moves}
        for sign in (1.0, -1.0):
            moved = [_moved(view, sign * steps[i]) if i in steps else view.clone() for i, view in enumerate(views)]
            found.append(evaluator.wide(wide, moved))
    return found


def _moved(view: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The values plus the step. Infinities of a mask become huge numbers, so that equal ones move apart too."""
    if view.is_complex():
        return view + step
    return torch.where(torch.isinf(view), view.sign() * _FAR, view) + step


def _step(tensor: DrawnTensor, view: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """By how much each element is moved: relative to its magnitude, or for a zero to the usual magnitude."""
    usual = getattr(tensor.recipe.fill, "std", 1.0) or 1.0
    magnitude = torch.where(view == 0, usual, view.abs())
    magnitude = torch.where(torch.isfinite(magnitude), magnitude, _FAR)
    drawn = [_drawn(view.shape, generator).to(view.device) for _ in range(2 if view.is_complex() else 1)]
    parts = torch.complex(*drawn) if view.is_complex() else drawn[0]
    return parts * magnitude * (_STEP * torch.finfo(tensor.view.dtype).eps)


def _drawn(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Between 1/2 and 3/2 of either sign: equal values do not stay equal."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0
    return (drawn + 0.5) * signs
