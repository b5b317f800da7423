"""How far from the exact result an honest one may lie, element by element.

For an element with exact value e (the operator in float64 on the same rounded inputs), torch's own result n in
the dtype of the case, and sensitivity s (below), a result r is accepted when

    |r - e| <= F * (A * u_out + B * u_acc) * (|e| + s)  +  C * |n - e|  +  underflow

u_out        unit roundoff of the output's dtype. A = 2: the result is rounded once, and one intermediate may be.
u_acc        unit roundoff of the accumulator: float64 for float64 results, float32 for every other. Honest kernels
             for 16-bit dtypes accumulate in float32, so that nothing wider is granted to them for long sums.
s            how far e moves when every float input element moves by one part in 1/u, divided by u: the root mean
             square, over a few draws of random signs, of a central difference in float64. It is what makes a
             bound fair: a sum that cancels has s much larger than |e|, a copy has s = |e|. Where the two one-sided
             differences do not mirror each other there is a jump (floor, sign, a near tie), no slope, and s is 0.
             As few draws can underestimate, s is at least a quarter of the geometric mean of its 64 neighbours; an
             s of exactly 0 (an element that depends on nothing) stays 0.
B            16 + 2 * sqrt(L) for L terms to add, L capped at 2**14; 16 for pointwise operators. Rounding
             errors of a plain left-to-right sum of L terms walk randomly to about 0.3 * sqrt(L) times u * s; over a
             million elements the worst is five times that. Blocked and pairwise sums lie far below. The next lower
             precision (tf32, bfloat16, float16 inputs) starts at 2**11 times u * s and cannot hide under it.
F            1 unless torch itself is worse: twice its typical worst ratio to the bound (a library that uses tf32,
             Winograd, or 16-bit accumulators). Robust: one odd element cannot raise it, and F never lifts the bound
             above a sixteenth of |e| + s, so that nothing can make zeros pass.
C = 2        where torch is off at this very element (on the other side of a jump), so may a candidate be.
underflow    the smallest normal number where subnormals may be flushed (float32, bfloat16, float64); in float16, whose
             subnormals are in ordinary use, half their spacing times A.

There is no other absolute slack. A bound of 0, equality, is demanded where the operator is seen to only move
values (each element's |s| equals |e|, torch's error is 0 everywhere, on at least 16 elements): copies, gathers,
sorts, maxima, relu. Not in float64, where the exact result is torch's own.

Left for later: bounds on the root mean square and on the bias of the error, several native runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

OUTPUT_ROUNDINGS = 3.0
"""A."""
POINTWISE_ROUNDINGS = 16.0
"""B without growth."""
GROWTH = 2.0
"""B's growth per square root of the number of terms."""
MAX_TERMS = 1 << 14
NATIVE_MULTIPLE = 2.0
"""C, and F's multiple of torch's own ratio."""
MAX_SHARE = 1.0 / 16.0
"""What F may lift the bound to, as a share of |e| + s."""
OUTLIER_MULTIPLE = 16.0
"""torch's worst ratio counts up to this many times its median ratio."""
NEIGHBOURHOOD = 64
NEIGHBOUR_SHARE = 1.0
FLOAT64_MULTIPLE = 4.0
UNPROBED_MULTIPLE = 2.0
"""Without a float64 result both sides err: the bound around torch's own result is doubled."""
MIN_MOVED = 16
"""Elements needed as evidence that an operator only moves values."""
MOVED_TOLERANCE = 1e-5
_MEDIAN_SAMPLE = 4096
_LOG_RANGE = (1e-30, 1e30)


@dataclass(frozen=True)
class Calibration:
    """What a fully probed call of a case taught about one of its results; used for calls probed sparingly."""

    level: torch.Tensor
    """Geometric mean of the non-zero sensitivities, a scalar on the device; 0 if there are none."""
    moves: torch.Tensor
    """Whether the operator was seen to only move values, a scalar on the device."""

    def merged(self, earlier: Calibration | None) -> Calibration:
        """Levels from the newer call; equality is demanded only as long as every call showed movement."""
        return self if earlier is None else Calibration(self.level, self.moves & earlier.moves)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return float(torch.finfo(dtype).eps) / 2.0


def accumulation_roundoff(dtype: torch.dtype) -> float:
    """u_acc for a result of this dtype."""
    return unit_roundoff(torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32)


def accumulation_roundings(terms: int) -> float:
    """B for a result that adds ``terms`` values; 1 for pointwise operators."""
    return POINTWISE_ROUNDINGS + (GROWTH * math.sqrt(min(terms, MAX_TERMS)) if terms > 1 else 0.0)


def underflow(dtype: torch.dtype) -> float:
    """What is lost where numbers become too small for the dtype."""
    limits = torch.finfo(dtype)
    scale = OUTPUT_ROUNDINGS * unit_roundoff(dtype) if dtype is torch.float16 else 1.0
    return scale * float(limits.smallest_normal)


def calibrate(native: torch.Tensor, exact: torch.Tensor, sensitivity: torch.Tensor) -> Calibration:
    """Read the calibration off fully probed calls. ``sensitivity`` is as probed, not yet smoothed."""
    magnitude = exact.abs()
    finite = torch.isfinite(magnitude)
    pure = (sensitivity - magnitude).abs() <= MOVED_TOLERANCE * magnitude
    same = native.to(exact.dtype) == exact
    enough = native.numel() >= MIN_MOVED and native.dtype not in (torch.float64, torch.complex128)
    moves = ((pure & same) | ~finite).all() & (sensitivity > 0).any() & enough
    return Calibration(_geometric_mean(sensitivity.reshape(1, -1)).squeeze(), moves)


def smooth(sensitivity: torch.Tensor, calibration: Calibration | None) -> torch.Tensor:
    """Lift chance underestimates to a share of the neighbourhood's level (and of the calibrated one)."""
    calls = sensitivity.shape[0]
    flat = sensitivity.reshape(calls, -1)
    size = flat.shape[1]
    if size == 0:
        return sensitivity
    windows = _windows(flat)
    floor = _geometric_mean(windows).expand_as(windows).reshape(calls, -1)[:, :size]
    if calibration is not None:
        floor = torch.maximum(floor, calibration.level.to(floor.dtype))
    lifted = torch.maximum(flat, NEIGHBOUR_SHARE * floor)
    return torch.where(flat > 0, lifted, flat).reshape(sensitivity.shape)


def bound(
    native: torch.Tensor, exact: torch.Tensor, sensitivity: torch.Tensor, terms: int, calibration: Calibration | None
) -> torch.Tensor:
    """The bound of every element, for results of shape ``(calls, ...)``. ``sensitivity`` is smoothed."""
    share = _share(native.dtype, terms)
    unit = exact.abs() + sensitivity
    error = _finite_or_zero((native.to(exact.dtype) - exact).abs())
    lifted = _native_factor(error, share * unit).clamp(max=max(1.0, MAX_SHARE / share))
    result = _finite_or_zero(lifted * share * unit) + NATIVE_MULTIPLE * error + underflow(native.dtype)
    return result if calibration is None else result * ~calibration.moves


def bound_without_exact(native: torch.Tensor, terms: int) -> torch.Tensor:
    """The bound around torch's own result, for operators that do not run in float64."""
    magnitude = _finite_or_zero(native.to(wide_dtype(native.dtype)).abs())
    share = UNPROBED_MULTIPLE * _share(native.dtype, terms)
    return share * (magnitude + smooth(magnitude, None)) + underflow(native.dtype)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of exact results."""
    return torch.complex128 if dtype.is_complex else torch.float64


def _share(dtype: torch.dtype, terms: int) -> float:
    """A * u_out + B * u_acc."""
    rounding = OUTPUT_ROUNDINGS * unit_roundoff(dtype)
    share = rounding + accumulation_roundings(terms) * accumulation_roundoff(dtype)
    return FLOAT64_MULTIPLE * share if dtype in (torch.float64, torch.complex128) else share


def _native_factor(error: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """F before its cap, one per call, shaped to broadcast over the call's elements."""
    calls = error.shape[0]
    if error.numel() == 0:
        return error.new_ones((calls, *[1] * (error.dim() - 1)))
    ratio = (error / base).reshape(calls, -1)
    ratio = torch.where(torch.isfinite(ratio) & (ratio > 0), ratio, torch.nan)
    sample = ratio[:, :: max(1, ratio.shape[1] // _MEDIAN_SAMPLE)]
    typical = OUTLIER_MULTIPLE * sample.nanmedian(dim=1).values
    worst = torch.minimum(ratio.nan_to_num(nan=0.0).amax(dim=1), typical)
    factor = (NATIVE_MULTIPLE * worst.nan_to_num(nan=0.0)).clamp(min=1.0)
    return factor.reshape(calls, *[1] * (error.dim() - 1))


def _windows(flat: torch.Tensor) -> torch.Tensor:
    """``(calls, size)`` cut into ``(calls, windows, NEIGHBOURHOOD)``, the rest padded with zeros."""
    calls, size = flat.shape
    width = min(size, NEIGHBOURHOOD)
    padded = torch.nn.functional.pad(flat, (0, -size % width))
    return padded.reshape(calls, -1, width)


def _geometric_mean(values: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, of the values within a sane range; 0 where there are none. In float32: a level."""
    low, high = _LOG_RANGE
    counted = (values > low) & (values < high)
    logs = torch.where(counted, values, 1.0).to(torch.float32).log2_()
    count = counted.sum(dim=-1, keepdim=True)
    mean = torch.exp2(logs.sum(dim=-1, keepdim=True) / count.clamp(min=1)).to(values.dtype)
    return torch.where(count > 0, mean, 0.0)


def _finite_or_zero(values: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
