"""Estimates the rounding noise of torch's own results, where there is no float64 evaluation to compare with.

The operator is called in the dtype of the case on inputs moved up and down by a step h. For a smooth function

    n(x + h) - n(x - h)           is 2 h s, with s the slope that bounds are built on
    n(x + h) + n(x - h) - 2 n(x)  is h^2 times the curvature, and what rounding does to three evaluations

h is the square root of the unit roundoff, so that the curvature contributes about one rounding. Then the
second difference over sqrt(6) is about torch's own random error, never much less. This is the usual estimate of the
computational noise of a function from its values alone (More and Wild, ECNoise).

It does not show an error of torch's that is the same on both sides (a bias).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import Evaluator, ResultPosition, Tensors, is_continuous, wide_dtype
from torchstone.judging.reference.float64 import (
    allow_cancellation,
    both_sides,
    moved_natively,
    pairs_for,
    steps_apart,
    widened,
)


@dataclass(frozen=True, eq=False)
class NativeNoise:
    """Slope and noise of one result of one call."""

    slope: torch.Tensor
    """float64, in the shape of the result. Unlike the slope of a float64 probe, it is large at a jump, not 0."""
    noise: torch.Tensor
    """float64, in the same shape: about the root mean square of torch's own error."""


def roughness(
    evaluator: Evaluator, call: DrawnCall, native: Tensors, *, closely: bool = False
) -> dict[ResultPosition, NativeNoise]:
    """Slope and noise of each of torch's own results in ``native``; empty without floating-point inputs.

    ``closely``: use more pairs of steps.
    """
    inputs = [tensor.storage.dtype for tensor in call.tensors if is_continuous(tensor.storage.dtype)]
    if not inputs:
        return {}
    elements = sum(tensor.storage.numel() for tensor in call.tensors) + sum(t.numel() for t in native.values())
    step = math.sqrt(max(_roundoff(dtype) for dtype in [*inputs, *(t.dtype for t in native.values())]))
    wide = widened(call)
    rows = moved_natively(evaluator, call, wide, pairs_for(elements, closely=closely), step)
    steps = list(steps_apart(evaluator, rows, evaluator.native_call))
    sides = {place: both_sides(steps, place, tensor) for place, tensor in native.items()}
    found = {
        place: _slope_and_noise(side[0], native[place], side[1], step)
        for place, side in sides.items()
        if side is not None
    }
    allow_cancellation(evaluator, wide, native, {place: rough.slope for place, rough in found.items()})
    return found


def _slope_and_noise(ahead: torch.Tensor, native: torch.Tensor, behind: torch.Tensor, step: float) -> NativeNoise:
    wide = wide_dtype(native.dtype)
    a, n, b = ahead.to(wide), native.to(wide), behind.to(wide)
    odd, even = (a - b).abs() / (2.0 * step), (a + b - 2.0 * n).abs() / math.sqrt(6.0)
    return NativeNoise(_rms(odd), _rms(even))


def _rms(values: torch.Tensor) -> torch.Tensor:
    """Root mean square over the pairs, with NaN and infinity as 0."""
    return values.nan_to_num(nan=0.0, posinf=0.0).square().mean(dim=0).sqrt()


def _roundoff(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) / 2.0
