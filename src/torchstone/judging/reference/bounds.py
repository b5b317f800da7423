"""Computes the error bound of each element: how far an honest result may lie from the exact one.

For an element with exact value e (the operator in float64 on the same rounded inputs), torch's own result n in
the dtype of the case, and slope s (:mod:`torchstone.judging.reference.float64`), a result r is accepted when

    |r - e| <= F * (A * u_out + B * u_acc) * (|e| + s)  +  C * |n - e|  +  underflow

u_out        unit roundoff of the output's dtype. A = 3: the result is rounded, and two intermediates may be.
u_acc        unit roundoff of the accumulator: float64 for float64 results, float32 for every other. Honest kernels
             for 16-bit dtypes accumulate in float32, so these get no wider bound for long sums.
s            how far e moves per relative move of the inputs. It makes the bound fit the operator: a sum that cancels
             has s much larger than |e|, a copy has s = |e|. Few probes can underestimate s, and formulas in honest use
             cancel inside (1 + erf in gelu). So s is at least the geometric mean of its 64 neighbours. An s of
             exactly 0 (an element that depends on nothing, or a jump) stays 0.
B            16 + 2 * sqrt(L) for L terms to add, L capped at 2**14; 16 for pointwise operators. Rounding errors of a
             plain left-to-right sum of L terms walk randomly to about 0.3 * sqrt(L) times u * s; over a million
             elements the worst is five times that. Blocked and pairwise sums lie far below. The next lower
             precision (tf32, bfloat16, float16 inputs) starts at 2**11 times u * s.
F            1 unless torch itself is worse: twice its typical worst ratio to the bound (a library that uses tf32,
             Winograd, 16-bit accumulators). One outlier cannot raise F. F never raises the bound above a sixteenth of
             |e| + s, so that a result of zeros cannot pass. A large result has one F for each piece.
C = 2        where torch is off at this very element (on the other side of a jump), a candidate may be off too.
underflow    the smallest normal number where subnormals may be flushed (float32, bfloat16, float64); in float16,
             whose subnormals are in ordinary use, A halves of their spacing.

There is no other absolute allowance. In float64 the exact result is torch's own and has rounding errors too: A and B
count four times. Without a float64 result the bound is around torch's own, twice as wide. The slope and the noise of
:mod:`torchstone.judging.reference.native_noise` then replace s and torch's error. If these are unknown, the magnitude
of torch's result replaces s.

A bound of 0, equality, applies where the operator only moves values: copies, gathers, sorts, maxima, relu. The
evidence is that s equals |e| and torch's error is 0 everywhere, on at least 16 elements. Equality also applies where
torch is off by one step of the dtype everywhere (``nextafter``). Rounding is off by at most half a step, so the step
is the operator's purpose, and float64 has other steps. Neither applies in float64.

A bound for every element lets errors pass that are small one by one and large together. An example is a float32 sum of
many positive terms whose inputs were rounded to tf32: no element is further off than the worst of a plain left-to-right
sum. So the errors of a whole result are bounded too. With each error divided by what is typical of honest kernels,

    z = (r - e) / w,    w = (A * u_out + B * u_acc) / 6 * (|e| + s)  +  underflow

    root mean square of z                     <=  1   + 3 / sqrt(N)  + 2 * that of torch
    |mean of z|, |mean of z * sign of e|      <=  1/4 + 3 / sqrt(M)  + 2 * that of torch

1/6          of the largest error allowed is the root mean square of the worst honest kernels: B / 6 grows with a third
             of sqrt(L), as a left-to-right sum of positive terms does, measured at a quarter. All honest variants of
             tests/judging/calibration.py stay below 0.4 of the two bounds; tf32 inputs lie above 1.
1/4          for the bias: truncated inputs, and truncating to 16 bits, lie above; rounding to nearest lies at 0.
N            elements; those whose exact values repeat err alike and count once.
M            errors that are independent: N, but N / L where a sum enters many results (softmax, norms, products).

Elements where torch is an outlier (16 times its median z: the other side of a jump) or that are not finite do not
count. Not detected: tf32 inputs of sums of very many positive terms, whose errors are no larger than those of a
left-to-right sum. Measured: 3000 terms in 256 rows are detected always, 4000 in 16 rows three times in four.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from torchstone.calls.reference_calls import wide_dtype
from torchstone.judging.reference.float64 import Float64Probe, pieces
from torchstone.judging.reference.native_noise import NativeNoise

OUTPUT_ROUNDINGS = 3.0
"""A."""
POINTWISE_ROUNDINGS = 16.0
"""B without growth."""
GROWTH = 2.0
"""B's growth per square root of the number of terms."""
MAX_TERMS = 1 << 14
"""The largest number of terms for which B grows."""
NATIVE_MULTIPLE = 2.0
"""C, and F's multiple of torch's own ratio."""
MAX_SHARE = 1.0 / 16.0
"""The largest bound that F may cause, as a share of |e| + s."""
OUTLIER_MULTIPLE = 16.0
"""torch's worst ratio counts up to this many times its median ratio."""
FLOAT64_MULTIPLE = 4.0
"""Factor on A and B for float64 results."""
UNPROBED_MULTIPLE = 2.0
"""Factor on the bound if there is no float64 result to compare with."""
NEIGHBOURHOOD = 64
"""Neighbouring elements over which the geometric mean of slopes is taken."""
MIN_MOVED = 16
"""Elements that a result needs before equality is required because the operator only moves values."""
TYPICAL_SHARE = 1.0 / 6.0
"""The typical error of an honest kernel, as a share of the largest allowed."""
BIAS_SHARE = 0.25
"""The mean error that is allowed however many elements there are, in typical errors."""
CHANCE = 3.0
"""Allowance for chance in a root mean square or a mean: this, divided by sqrt(count)."""
FEW_DISTINCT = 0.9
"""If fewer than this share of a sample's values are distinct, only the distinct values count towards N."""
MOVED_TOLERANCE = 1e-5
"""Relative difference of s and |e| up to which an element counts as only moved."""
_STEPS_TO_NEXT_NUMBER = 0.45, 0.75, 1.1
"""Error of torch's result, in steps of the dtype, if the operator moves to the next number: at least, of most elements,
and at most. Below a power of two the next number is half a step away; a rounding is off by no more than that."""
_SAMPLE_ELEMENTS = 4096
"""Elements of a piece from which a median, or the share of distinct values, is estimated."""
_LEVEL_RANGE = (1e-30, 1e30)
"""Slopes outside this range are left out of a neighbourhood's mean, which is computed in float32."""
_DOUBLE_DTYPES = (torch.float64, torch.complex128)
"""Dtypes of double precision."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """What probed calls have shown of one result of a case. Scalars on the device: reading one waits for it."""

    level: torch.Tensor
    """Geometric mean of the slopes that are not 0; 0 if there are none."""
    moves: torch.Tensor
    """Whether the operator was seen to only move values."""

    def merged(self, earlier: Calibration | None) -> Calibration:
        """The newer level. Equality is required only if every call so far showed that values are only moved."""
        return self if earlier is None else Calibration(self.level, self.moves & earlier.moves.to(self.moves.device))


@dataclass(frozen=True, eq=False)
class Spread:
    """Limits for all errors of one result together. Scalars on the device: reading one waits for it."""

    weight: torch.Tensor
    """w of each element; infinity for elements that do not count."""
    rms: torch.Tensor
    """The largest root mean square of z."""
    bias: torch.Tensor
    """The largest mean of z, of either sign."""


@dataclass(frozen=True, eq=False)
class ElementBounds:
    """The bounds for one result of one call, and what torch's own result has shown."""

    bound: torch.Tensor
    """Bound of each element. It is not 0 yet for operators that only move values."""
    spread: Spread | None
    seen: Calibration


def moments(error: torch.Tensor, weight: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """[count, sum of z squared, sum of z, sum of z * sign of e] of a flat piece; the last two are 0 if z is complex."""
    counted = torch.isfinite(weight)
    z = _finite_or_zero(error / weight)
    squares = z.abs().square().sum()
    if z.is_complex():
        return torch.stack([counted.sum().to(torch.float64), squares, squares * 0.0, squares * 0.0])
    return torch.stack([counted.sum().to(torch.float64), squares, z.sum(), (z * centre.sign()).sum()])


def rms_and_bias(moments_: torch.Tensor) -> torch.Tensor:
    """[root mean square, larger bias] from the moments of all pieces."""
    means = moments_[1:] / moments_[0].clamp(min=1.0)
    return torch.stack([means[0].sqrt(), means[1:].abs().amax()])


def chance(count: float) -> float:
    """The allowance for chance in a mean over ``count`` independent errors."""
    return CHANCE / math.sqrt(max(count, 1.0))


def _distinct_count(exact: torch.Tensor) -> torch.Tensor:
    """An estimate of the number of distinct values: of all elements, or those of a sample if it has repeated ones."""
    sample = exact[:: max(1, exact.numel() // _SAMPLE_ELEMENTS)]
    real = torch.view_as_real(sample)[:, 0] if sample.is_complex() else sample
    found = (real.sort().values.diff() != 0).sum() + 1
    return torch.where(found < FEW_DISTINCT * real.numel(), found, exact.numel()).to(torch.float64)


def share(dtype: torch.dtype, terms: int) -> float:
    """A * u_out + B * u_acc for a result of this dtype that adds ``terms`` values (1: pointwise)."""
    accumulator = torch.float64 if dtype in _DOUBLE_DTYPES else torch.float32
    growth = GROWTH * math.sqrt(min(terms, MAX_TERMS)) if terms > 1 else 0.0
    sum_ = OUTPUT_ROUNDINGS * _roundoff(dtype) + (POINTWISE_ROUNDINGS + growth) * _roundoff(accumulator)
    return FLOAT64_MULTIPLE * sum_ if dtype in _DOUBLE_DTYPES else sum_


def limits(native: torch.Tensor, probed: Float64Probe, terms: int, independent_share: float | None) -> ElementBounds:
    """Bounds around the exact result of one call.

    ``independent_share``: the share of its errors that are independent; None: compute no spread.
    """
    return _limits(
        _NativeResult(native, probed.exact, probed.slope, None), share(native.dtype, terms), independent_share
    )


def limits_without_exact(
    native: torch.Tensor, rough: NativeNoise, terms: int, independent_share: float | None
) -> ElementBounds:
    """Bounds around torch's own result, twice as wide. The measured noise replaces torch's error."""
    own = _NativeResult(native, native.to(wide_dtype(native.dtype)), rough.slope, rough.noise)
    return _limits(own, UNPROBED_MULTIPLE * share(native.dtype, terms), independent_share)


@dataclass(frozen=True, eq=False)
class _NativeResult:
    """torch's own result, the centre of its bound, its slope and its noise."""

    native: torch.Tensor
    centre: torch.Tensor
    slope: torch.Tensor
    noise: torch.Tensor | None
    """None: the error is the difference of ``native`` and ``centre``."""

    def error(self, piece: slice) -> torch.Tensor:
        """torch's own error in a flat piece."""
        if self.noise is not None:
            return self.noise.reshape(-1)[piece].clone()
        return self.native.reshape(-1)[piece].to(self.centre.dtype) - self.centre.reshape(-1)[piece]


def _limits(own: _NativeResult, share_: float, independent_share: float | None) -> ElementBounds:
    native, dtype = own.native, own.native.dtype
    bound = torch.empty(native.shape, dtype=torch.float64, device=native.device)
    weight = bound if independent_share is None else torch.empty_like(bound)
    flat, w, e, s = (t.reshape(-1) for t in (bound, weight, own.centre, own.slope))
    total = torch.zeros(4, dtype=torch.float64, device=native.device)
    logs, moves = [], []
    for piece in pieces(flat.numel(), flat.device):
        error = own.error(piece)
        raised, sum_of_logs = _raised_slopes(s[piece])
        scale = raised.add_(e[piece].abs())
        if independent_share is not None:
            w[piece] = _weights(error, scale, dtype, share_)
            total += moments(error, w[piece], e[piece])
        flat[piece] = _bound_piece(error, scale, dtype, share_)
        logs.append(sum_of_logs)
        moves.append(_only_moves_values(error, e[piece], s[piece], dtype))
    spread = (
        None if independent_share is None else _limits_together(weight, total, _distinct_count(e), independent_share)
    )
    return ElementBounds(bound, spread, _calibration(logs, moves, native))


def _limits_together(
    weight: torch.Tensor, total: torch.Tensor, distinct: torch.Tensor, independent_share: float
) -> Spread:
    rms, bias = rms_and_bias(total)
    count = torch.minimum(total[0], distinct)
    return Spread(
        weight,
        1.0 + CHANCE * count.clamp(min=1.0).rsqrt() + NATIVE_MULTIPLE * rms,
        BIAS_SHARE + CHANCE * (count * independent_share).clamp(min=1.0).rsqrt() + NATIVE_MULTIPLE * bias,
    )


def _weights(error: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, share_: float) -> torch.Tensor:
    """w of a piece; infinity where torch is an outlier or a value is not finite. ``scale`` is |e| + s."""
    weight = (scale * (TYPICAL_SHARE * share_)).add_(_underflow(dtype))
    ratio = _finite_or_zero(error.abs() / weight)
    typical = _median_nonzero(ratio).nan_to_num(nan=0.0).clamp(min=1.0 / OUTLIER_MULTIPLE)
    outliers = (ratio > OUTLIER_MULTIPLE * typical) | ~torch.isfinite(error) | ~torch.isfinite(weight)
    return weight.masked_fill_(outliers, torch.inf)


def _median_nonzero(ratio: torch.Tensor) -> torch.Tensor:
    """The median of the ratios that are not 0, from a sample; NaN if all are 0."""
    sample = ratio[:: max(1, ratio.numel() // _SAMPLE_ELEMENTS)]
    return torch.where(sample > 0, sample, torch.nan).nanmedian()


def bound_without_exact(native: torch.Tensor, terms: int) -> torch.Tensor:
    """The bound around torch's own result, for operators that do not run in float64."""
    magnitude = _finite_or_zero(native.to(wide_dtype(native.dtype)).abs())
    if native.numel():
        magnitude = magnitude + _raised_slopes(magnitude.reshape(-1))[0].reshape(native.shape)
    return UNPROBED_MULTIPLE * share(native.dtype, terms) * magnitude + _underflow(native.dtype)


def _bound_piece(error: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, share_: float) -> torch.Tensor:
    """The bound of a piece. It is not 0 yet for operators that only move values."""
    base, distance = _finite_or_zero(scale * share_), _finite_or_zero(error.abs())
    factor = _native_factor(distance, base).clamp(1.0, max(1.0, MAX_SHARE / share_))
    return base.mul_(factor).add_(distance, alpha=NATIVE_MULTIPLE).add_(_underflow(dtype))


def _native_factor(distance: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """F before it is limited to 1 and to MAX_SHARE."""
    ratio = _finite_or_zero(distance / base)
    return NATIVE_MULTIPLE * torch.minimum(ratio.amax(), OUTLIER_MULTIPLE * _median_nonzero(ratio)).nan_to_num(nan=0.0)


def _raised_slopes(slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes raised to the mean of their neighbourhood, except those of 0; and [sum, count] of their logarithms."""
    width = min(slope.numel(), NEIGHBOURHOOD)
    windows = torch.nn.functional.pad(slope, (0, -slope.numel() % width)).reshape(-1, width)
    low, high = _LEVEL_RANGE
    counted = (windows > low) & (windows < high)
    logs = windows.to(torch.float32).clamp_(low, high).log2_().mul_(counted).sum(dim=1)
    count = counted.sum(dim=1)
    level = torch.exp2(logs / count.clamp(min=1)).to(slope.dtype).unsqueeze(1)
    raised = torch.maximum(windows, level).mul_(windows > 0)
    return raised.reshape(-1)[: slope.numel()], torch.stack([logs.sum(), count.sum().to(logs.dtype)])


def _only_moves_values(
    error: torch.Tensor, exact: torch.Tensor, slope: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Whether a piece looks as if the operator only moved its values, or moved each to the next number of the dtype."""
    magnitude = exact.abs()
    pure = (slope - magnitude).abs() <= MOVED_TOLERANCE * magnitude
    no_number = ~torch.isfinite(magnitude)
    here = pure & (error == 0)
    least, usual, most = _STEPS_TO_NEXT_NUMBER
    steps = error.abs() / _step(magnitude, dtype)
    stepped = pure & (steps > least) & (steps < most)
    of_steps = (here | stepped | no_number | (magnitude < _underflow(dtype))).all()
    return (here | no_number).all() | (of_steps & (2 * (steps > usual).sum() > steps.numel()))


def _step(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance from a number of this magnitude to the next larger one of the dtype."""
    exponent = torch.frexp(magnitude).exponent
    return torch.ldexp(torch.full_like(magnitude, float(torch.finfo(dtype).eps)), exponent - 1)


def _calibration(logs: list[torch.Tensor], moves: list[torch.Tensor], native: torch.Tensor) -> Calibration:
    total, count = torch.stack(logs).sum(dim=0) if logs else torch.zeros(2, device=native.device)
    level = torch.exp2(total / count.clamp(min=1)) * (count > 0)
    evidence = (count > 0) & (native.numel() >= MIN_MOVED and native.dtype not in _DOUBLE_DTYPES)
    return Calibration(level, torch.stack([*moves, evidence]).all())


def _roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return float(torch.finfo(dtype).eps) / 2.0


def _underflow(dtype: torch.dtype) -> float:
    """The absolute term of the bound."""
    scale = OUTPUT_ROUNDINGS * _roundoff(dtype) if dtype is torch.float16 else 1.0
    return scale * float(torch.finfo(dtype).smallest_normal)


def _finite_or_zero(values: torch.Tensor) -> torch.Tensor:
    return values.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
