"""Decides whether the values of a tensor are near enough to the expected ones, and describes the worst wrong element.

A floating-point element is accepted in three cases: it is within its bound of the exact value, it is torch's own
value, or it is the exact value rounded to the dtype. So a result that overflows float16 may be infinite where torch's
is, or finite where the exact value is. NaN matches only NaN, and an infinity only one of the same sign. Then all
errors together are examined.

Most results are plainly right. :func:`tally` finds this out without waiting for the device. The others are examined
element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch

from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.compare.input_wording import inputs_at, values_at
from torchstone.judging.comparison_result import Mismatch, Reason
from torchstone.judging.number_wording import counted, shown, shown_apart, shown_factor
from torchstone.judging.reference import bounds
from torchstone.judging.reference.expected import ExpectedValues
from torchstone.judging.reference.float64 import pieces
from torchstone.judging.same_values import first_and_last
from torchstone.schema import ErrorStatistics, WrongResult

RELATIVE_ERROR_FLOOR = 1e-10
"""Added to the exact magnitude in the denominator of a relative error."""
TALLIED = 7
"""How many numbers :func:`tally` returns for each tensor."""


@dataclass(frozen=True, eq=False)
class Subject:
    """One returned tensor or written storage, with its expected values."""

    call: DrawnCall
    place: ResultPosition
    values: ExpectedValues
    got: torch.Tensor


def subjects_of(
    call: DrawnCall,
    wanted: dict[ResultPosition, ExpectedValues],
    outputs: Sequence[Any],
    inputs_after: Sequence[torch.Tensor],
) -> Iterator[Subject]:
    """One subject for each entry of ``wanted``: returned tensors first, then written storages."""
    for place, values in wanted.items():
        source = outputs if place.kind == "output" else inputs_after
        yield Subject(call, place, values, source[place.position])


def tally(subject: Subject) -> torch.Tensor:
    """Seven numbers on the device: how many elements are not within the bound; the largest error, relative error,
    error/bound and torch's own error/bound; root mean square and bias of all errors.
    """
    got, native = subject.got.reshape(-1), subject.values.native.reshape(-1)
    centre = subject.values.centre.reshape(-1)
    bound = None if subject.values.bound is None else subject.values.bound.reshape(-1)
    total = torch.zeros(5, dtype=torch.float64, device=got.device)
    for piece in pieces(got.numel(), got.device):
        part = _tally_piece(got[piece], native[piece], centre[piece], None if bound is None else bound[piece])
        total = torch.cat([total[:1] + part[:1], torch.maximum(total[1:], part[1:])])
    return torch.cat([total, _rms_and_bias(subject)])


def _rms_and_bias(subject: Subject) -> torch.Tensor:
    """Root mean square and bias of all errors, divided by their limits; 0 if they are not judged."""
    spread, got, centre = subject.values.spread, subject.got.reshape(-1), subject.values.centre.reshape(-1)
    if spread is None:
        return torch.zeros(2, dtype=torch.float64, device=got.device)
    weight = spread.weight.reshape(-1)
    total = torch.zeros(4, dtype=torch.float64, device=got.device)
    for piece in pieces(got.numel(), got.device):
        error = got[piece].to(centre.dtype) - centre[piece]
        total += bounds.moments(error, weight[piece], centre[piece])
    return bounds.rms_and_bias(total) / torch.stack([spread.rms, spread.bias])


def judge_errors_together(
    subject: Subject, found: ErrorStatistics, rms: float, bias: float
) -> ErrorStatistics | Mismatch:
    """Judge all errors of a result together, after every element was found within its bound.

    ``rms``, ``bias``: root mean square and bias of the errors, divided by their limits.
    """
    statistics = msgspec.structs.replace(found, rms_over_bound=rms, bias_over_bound=bias)
    spread = subject.values.spread
    if spread is None or (rms <= 1.0 and bias <= 1.0):
        return statistics
    name, over, allowed = ("root mean square", rms, spread.rms) if rms >= bias else ("mean", bias, spread.bias)
    own = _rms_and_bias(replace(subject, got=subject.values.native))[0 if rms >= bias else 1]
    error = (subject.got.to(subject.values.centre.dtype) - subject.values.centre).abs() / spread.weight
    index = _unravelled(int(error.nan_to_num(nan=0.0, posinf=0.0).argmax()), subject.got.shape)
    got, wanted = shown_apart(subject.got[index].item(), subject.values.centre[index].item())
    message = (
        f"output {subject.place.position}: every element is within its bound, but the {name} of the errors is "
        f"{shown(over * float(allowed))} times the typical error, allowed {shown(float(allowed))}"
        f"{shown_factor(over, 1.0)}: lower precision inside the kernel, or a bias; worst at {list(index)}: got {got}, "
        f"expected {wanted}; {inputs_at(subject.call, subject.place, index, subject.got.shape)}; "
        f"torch's own {name} is {float(own):.2g} of the allowed"
    )
    wrong = WrongResult(
        position=subject.place.position,
        shape=tuple(subject.got.shape),
        elements=subject.got.numel(),
        worst_index=index,
        got=got,
        expected=wanted,
        inputs=values_at(subject.call, subject.place, index, subject.got.shape),
    )
    return Mismatch("precision", message, statistics, wrong=wrong)


def _tally_piece(
    got: torch.Tensor, native: torch.Tensor, centre: torch.Tensor, bound: torch.Tensor | None
) -> torch.Tensor:
    error = (got.to(centre.dtype) - centre).abs()
    relative = (error / (centre.abs() + RELATIVE_ERROR_FLOOR)).amax()
    if bound is None:
        zero = error.new_zeros(())
        return torch.stack([(got != native).sum().to(torch.float64), error.amax(), relative, zero, zero])
    native_over = _error_over_bound((native.to(centre.dtype) - centre).abs(), bound)
    beyond = (~(error <= bound)).sum().to(torch.float64)
    return torch.stack([beyond, error.amax(), relative, _error_over_bound(error, bound).amax(), native_over.amax()])


def closer_look(subject: Subject) -> ErrorStatistics | Mismatch:
    """Examine a result that :func:`tally` does not accept: it may have wrong values, or correct non-finite ones."""
    values, got = subject.values, subject.got
    centre = values.centre
    wrong = _wrong_elements(values, got)
    error = (got.to(centre.dtype) - centre).abs()
    bound = values.bound if values.bound is not None else torch.zeros_like(error)
    over = _error_over_bound(error, bound)
    over = torch.where(wrong & ~(over > 1.0), torch.inf, over)  # NaN has no error, and is wrong
    native_over = _error_over_bound((values.native.to(centre.dtype) - centre).abs(), bound)
    statistics = statistics_of(
        _largest_finite(error),
        _largest_finite(error / (centre.abs() + RELATIVE_ERROR_FLOOR)),
        float(torch.where(wrong | (over <= 1.0), over, 0.0).amax()),
        _largest_finite(native_over),
    )
    if not bool(wrong.any()):
        return statistics
    statistics = _with_wrong_errors(statistics, error[wrong])
    nonfinite = wrong & ~(torch.isfinite(got) & torch.isfinite(centre))
    reason: Reason = "nonfinite" if bool(nonfinite.any()) else "values"
    severity = nonfinite.to(torch.float64) if reason == "nonfinite" else torch.where(wrong, over, -1.0)
    worst = int(severity.argmax())
    message = _describe(subject, wrong, worst, _largest_finite(native_over))
    fields = _wrong_result(subject, wrong, worst)
    return Mismatch(reason if subject.place.kind == "output" else "mutation", message, statistics, wrong=fields)


def _with_wrong_errors(statistics: ErrorStatistics, errors: torch.Tensor) -> ErrorStatistics:
    """Add the smallest and the largest error of wrong elements: these tell coarse rounding from a wrong result."""
    finite = errors[torch.isfinite(errors)]
    if not finite.numel():
        return statistics
    smallest, largest = (float(edge) for edge in torch.aminmax(finite))
    return msgspec.structs.replace(statistics, smallest_wrong_error=smallest, largest_wrong_error=largest)


def _wrong_elements(values: ExpectedValues, got: torch.Tensor) -> torch.Tensor:
    """Which elements are wrong, by the full acceptance rule."""
    if values.bound is None:
        return got != values.native
    centre = values.centre
    close = (got.to(centre.dtype) - centre).abs() <= values.bound
    accepted = close | _equal_or_both_nan(got, values.native) | _equal_or_both_nan(got, centre.to(got.dtype))
    if got.dtype.is_complex:  # torch does not promise which part of a complex number overflows.
        return ~(accepted | (~torch.isfinite(got) & ~torch.isfinite(values.native)))
    at_the_edge = torch.isfinite(centre) & (centre.abs() + values.bound >= torch.finfo(got.dtype).max)
    return ~(accepted | (at_the_edge & torch.isinf(got) & ((got > 0) == (centre > 0))))


def _describe(subject: Subject, wrong: torch.Tensor, worst: int, native_over: float) -> str:
    """The message: number of wrong elements; index, got, expected, error, bound, inputs of the worst; torch's own."""
    values = subject.values
    index = _unravelled(worst, subject.got.shape)
    got, native, wanted = subject.got[index].item(), values.native[index].item(), values.centre[index].item()
    name = f"{subject.place.kind} {subject.place.position}" + (" after the call" * (subject.place.kind == "argument"))
    where = f"{name}: {int(wrong.sum())} of {counted(wrong.numel(), 'element')} wrong; worst at {list(index)}: "
    inputs = inputs_at(subject.call, subject.place, index, subject.got.shape)
    if values.bound is None:
        found, right = shown_apart(got, native)
        return f"{where}got {found}, expected {right}; {inputs}"
    found, right = shown_apart(got, wanted)
    text = f"{where}got {found}, expected {right}{_against_bound(abs(got - wanted), float(values.bound[index]))}"
    fares = f", torch's worst error {native_over:.2g} of the allowed" if native_over else ""
    return f"{text}; {inputs}; torch's own result there: {shown(native)}{fares}"


def _wrong_result(subject: Subject, wrong: torch.Tensor, worst: int) -> WrongResult:
    """What the message says, as fields."""
    values, index = subject.values, _unravelled(worst, subject.got.shape)
    wanted = values.native if values.bound is None else values.centre
    got, expected = shown_apart(subject.got[index].item(), wanted[index].item())
    first, last = first_and_last(wrong)
    return WrongResult(
        kind=subject.place.kind,
        position=subject.place.position,
        shape=tuple(subject.got.shape),
        elements=wrong.numel(),
        wrong=int(wrong.sum()),
        first_wrong=first,
        last_wrong=last,
        worst_index=index,
        got=got,
        expected=expected,
        inputs=values_at(subject.call, subject.place, index, subject.got.shape),
    )


def _against_bound(error: float, bound: float) -> str:
    """The part of the message on error and bound; empty if the error is NaN or infinite."""
    if not math.isfinite(error):
        return ""
    allowed = shown(bound) if bound else "0 (this operator only moves values)"
    return f", error {shown(error)}, allowed {allowed}{shown_factor(error, bound)}"


def _error_over_bound(error: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """The error divided by the bound; 0 for 0 / 0 and for NaN, so that these do not enter a maximum."""
    return torch.nan_to_num(error / bound, nan=0.0, posinf=torch.inf)


def _largest_finite(values: torch.Tensor) -> float:
    return float(torch.where(torch.isfinite(values), values, 0.0).amax())


def statistics_of(absolute: float, relative: float, over: float, native_over: float) -> ErrorStatistics:
    """Statistics for JSON, which has no infinity: infinite errors become None, an infinite error/bound ``"inf"``."""
    known = [number if math.isfinite(number) else None for number in (absolute, relative, native_over)]
    return ErrorStatistics(known[0], known[1], "inf" if over == math.inf else over, known[2])


def _equal_or_both_nan(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (torch.isnan(one) & torch.isnan(other))


def _unravelled(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
