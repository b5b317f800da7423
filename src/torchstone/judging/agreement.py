"""Does what a call gave agree with what it must give?

Metadata first (number and kind of outputs, dtype, shape), then non-finite positions, then values against the
bounds of :mod:`torchstone.judging.bounds`, then the arguments that the operator writes to, then everything that
it must leave alone, bit for bit. The first thing that is wrong is the answer.

A floating-point element is accepted if it is within its bound of the exact value, or is torch's own value, or the
exact value rounded to the dtype. So a result that overflows float16 may be infinite where torch's is, or finite
where the exact value is; NaN stands only for NaN, and an infinity only for one of the same sign.

Comparing costs one transfer from the device however many calls and outputs are compared; only a disagreement
is looked at more closely. Layout and aliasing of outputs are not judged yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from torchstone.judging.expected import Expected, ExpectedBatch, PlainLeaf, TensorLeaf, Values
from torchstone.schema import ErrorStatistics

Reason = Literal["values", "nonfinite", "shape", "dtype", "structure", "mutation"]

RELATIVE_ERROR_FLOOR = 1e-10
"""Added to the exact magnitude where a relative error is reported."""
_UNKNOWN = ErrorStatistics()
_NONE_YET = ErrorStatistics(0.0, 0.0, 0.0, 0.0)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Agreement:
    """Every call gave the right result and left the right things alone."""

    errors: ErrorStatistics
    calls: int = 1


@dataclass(frozen=True)
class Mismatch:
    """A call did not."""

    reason: Reason
    message: str
    errors: ErrorStatistics = _UNKNOWN
    call: int = 0
    """Which of the compared calls; the worst or the first of those that are wrong in this way."""


def compare(expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]) -> Agreement | Mismatch:
    """Compare one call: its flattened outputs, and the flat storage of every tensor argument after it."""
    return compare_many([expected], [outputs], [inputs_after])


def compare_many(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> Agreement | Mismatch:
    """Compare several calls of one case, all together. Everything lies on the reference's device."""
    errors = _NONE_YET
    for position, batch, start, stop in _runs(expected):
        rows = slice(position, position + stop - start)
        found = _Comparison(batch, start, stop, outputs[rows], inputs_after[rows]).outcome()
        if isinstance(found, Mismatch):
            return replace(found, call=found.call + position)
        errors = _worse(errors, found)
    return Agreement(errors, len(expected))


def _runs(expected: Sequence[Expected]) -> Iterator[tuple[int, ExpectedBatch, int, int]]:
    """Stretches of consecutive calls of one batch: where in the sequence, the batch, from which row, to which."""
    begin = 0
    for end in range(1, len(expected) + 1):
        first, last = expected[begin], expected[end - 1]
        follows = end < len(expected) and expected[end].batch is first.batch and expected[end].index == last.index + 1
        if not follows:
            yield begin, first.batch, first.index, last.index + 1
            begin = end


@dataclass(frozen=True)
class _Subject:
    """One tensor of all compared calls, beside what it must hold."""

    name: str
    values: Values
    got: torch.Tensor
    is_output: bool


class _Comparison:
    """Some consecutive calls of one batch against what they gave."""

    def __init__(
        self,
        batch: ExpectedBatch,
        start: int,
        stop: int,
        outputs: Sequence[Sequence[Any]],
        inputs_after: Sequence[Sequence[torch.Tensor]],
    ) -> None:
        self._batch = batch
        self._start = start
        self._stop = stop
        self._outputs = outputs
        self._inputs_after = inputs_after

    def outcome(self) -> ErrorStatistics | Mismatch:
        """The errors of calls that agree, or what is wrong."""
        misfit = self._metadata()
        if misfit is not None:
            return misfit
        subjects = [*self._returned(), *self._written()]
        changed = self._changed()
        tallies = [_tally(subject) for subject in subjects]
        # The one transfer from the device.
        rows = (
            torch.stack([*tallies, *(_padded(flag) for flag in changed.values())]).tolist()
            if tallies or changed
            else []
        )
        errors = _NONE_YET
        for subject, (beyond, *statistics) in zip(subjects, rows, strict=False):
            found = _statistics(*statistics) if beyond == 0 else _closer_look(subject)
            if isinstance(found, Mismatch):
                return found
            errors = _worse(errors, found)
        for position, row in zip(changed, rows[len(subjects) :], strict=True):
            if row[0]:
                return self._describe_change(position)
        return errors

    def _metadata(self) -> Mismatch | None:
        """Structure of all calls, then dtypes, then shapes."""
        leaves = self._batch.leaves
        for call, outputs in enumerate(self._outputs):
            if leaves and len(outputs) != len(leaves):
                message = f"returned {_count(len(outputs), 'output')}, expected {len(leaves)}"
                return Mismatch("structure", message, call=call)
        for position, leaf in enumerate(leaves):
            for call, outputs in enumerate(self._outputs):
                misfit = self._leaf_misfit(leaf, position, call, outputs[position])
                if misfit is not None:
                    return replace(misfit, call=call, message=f"output {position}: {misfit.message}")
        return None

    def _leaf_misfit(self, leaf: TensorLeaf | PlainLeaf, position: int, call: int, got: Any) -> Mismatch | None:
        if isinstance(leaf, PlainLeaf):
            wanted = leaf.values[self._start + call]
            if type(got) is not type(wanted):
                return Mismatch("structure", f"got a {_kind(got)}, expected a {_kind(wanted)}")
            same = got == wanted or (got != got and wanted != wanted)
            return None if same else Mismatch("values", f"got {got!r}, expected {wanted!r}")
        if not isinstance(got, torch.Tensor):
            return Mismatch("structure", f"got a {_kind(got)}, expected a tensor")
        if got.dtype != leaf.dtype:
            return Mismatch("dtype", f"got {_dtype_name(got.dtype)}, expected {_dtype_name(leaf.dtype)}")
        if tuple(got.shape) != leaf.shape:
            return Mismatch("shape", f"got shape {list(got.shape)}, expected {list(leaf.shape)}")
        return None

    def _returned(self) -> Iterator[_Subject]:
        for position, leaf in enumerate(self._batch.leaves):
            if isinstance(leaf, TensorLeaf):
                got = _stack([outputs[position] for outputs in self._outputs])
                yield _Subject(f"output {position}", leaf.values.of_calls(self._start, self._stop), got, is_output=True)

    def _written(self) -> Iterator[_Subject]:
        for position, values in self._batch.mutated.items():
            got = _stack([after[position] for after in self._inputs_after])
            name = f"argument {position} after the call"
            yield _Subject(name, values.of_calls(self._start, self._stop), got, is_output=False)

    def _changed(self) -> dict[int, torch.Tensor]:
        """For each argument that must stay as it was: how many of its elements did not, a scalar on the device."""
        count = len(self._batch.calls[0].tensors)
        kept = [position for position in range(count) if position not in self._batch.mutated]
        return {position: self._differs(position).sum() for position in kept}

    def _differs(self, position: int) -> torch.Tensor:
        before = _stack([call.tensors[position].storage for call in self._batch.calls[self._start : self._stop]])
        after = _stack([after[position] for after in self._inputs_after])
        return _bits(before) != _bits(after)

    def _describe_change(self, position: int) -> Mismatch:
        differs = self._differs(position)
        call, element = divmod(int(differs.reshape(-1).to(torch.uint8).argmax()), differs.shape[1])
        before = self._batch.calls[self._start + call].tensors[position].storage[element].item()
        after = self._inputs_after[call][position][element].item()
        message = (
            f"argument {position} must not change: {int(differs[call].sum())} of {differs.shape[1]} elements of its "
            f"storage did, the first at {element}: {_shown(before)} became {_shown(after)}"
        )
        return Mismatch("mutation", message, call=call)


def _tally(subject: _Subject) -> torch.Tensor:
    """Elements not plainly within the bound; max error, relative error, error/bound; torch's error/bound."""
    values, got = subject.values, subject.got
    if got.numel() == 0:
        return torch.zeros(5, dtype=torch.float64, device=got.device)
    if values.bound is None:
        beyond = got != values.native
        error = (got.to(torch.float64) - values.native.to(torch.float64)).abs()
        zero = error.new_zeros(())
        relative = error / (values.native.to(torch.float64).abs() + RELATIVE_ERROR_FLOOR)
        return torch.stack([beyond.sum().to(torch.float64), error.amax(), relative.amax(), zero, zero])
    centre = values.centre
    error = (got.to(centre.dtype) - centre).abs()
    native_error = (values.native.to(centre.dtype) - centre).abs()
    return torch.stack(
        [
            (~(error <= values.bound)).sum().to(torch.float64),
            error.amax(),
            (error / (centre.abs() + RELATIVE_ERROR_FLOOR)).amax(),
            _over(error, values.bound).amax(),
            _over(native_error, values.bound).amax(),
        ]
    )


def _closer_look(subject: _Subject) -> ErrorStatistics | Mismatch:
    """What the plain test could not accept: non-finite values that are right, or a disagreement."""
    values, got = subject.values, subject.got
    centre = values.centre
    wrong = _wrong(values, got)
    error = (got.to(centre.dtype) - centre).abs()
    over = _over(error, values.bound if values.bound is not None else torch.zeros_like(error))
    native_error = (values.native.to(centre.dtype) - centre).abs()
    native_over = _over(native_error, values.bound) if values.bound is not None else torch.zeros_like(error)
    relative = error / (centre.abs() + RELATIVE_ERROR_FLOOR)
    excused = ~wrong & ~(over <= 1.0)
    statistics = _statistics(
        _largest(error), _largest(relative), float(_largest_or_inf(over, excused)), _largest(native_over)
    )
    if not bool(wrong.any()):
        return statistics
    nonfinite = wrong & ~(torch.isfinite(got) & torch.isfinite(centre))
    if bool(nonfinite.any()):
        worst = int(nonfinite.reshape(-1).to(torch.uint8).argmax())
        reason: Reason = "nonfinite"
    else:
        worst = int(torch.where(wrong, over, -1.0).argmax())
        reason = "values"
    message, call = _describe(subject, wrong, worst, native_over)
    return Mismatch(reason if subject.is_output else "mutation", message, statistics, call)


def _wrong(values: Values, got: torch.Tensor) -> torch.Tensor:
    """The acceptance rule in full."""
    if values.bound is None:
        return got != values.native
    centre = values.centre
    close = (got.to(centre.dtype) - centre).abs() <= values.bound
    accepted = close | _same(got, values.native) | _same(got, centre.to(got.dtype))
    if got.dtype.is_complex:  # Which part of a complex number overflows is nobody's promise.
        return ~(accepted | (~torch.isfinite(got) & ~torch.isfinite(values.native)))
    at_the_edge = centre.abs() + values.bound >= torch.finfo(got.dtype).max
    return ~(accepted | (at_the_edge & torch.isinf(got) & (got.sign() == centre.sign())))


def _describe(subject: _Subject, wrong: torch.Tensor, worst: int, native_over: torch.Tensor) -> tuple[str, int]:
    """Where it is worst, got, expected, error against bound, how many are wrong, how torch fares."""
    values, got = subject.values, subject.got
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape)]
    call, index = place[0], place[1:]
    here = tuple(place)
    wanted = values.native[here] if values.bound is None else values.centre[here]
    bad = int(wrong[call].sum())
    text = f"{subject.name}: {bad} of {_count(wrong[call].numel(), 'element')} wrong"
    text += f"; worst at {index}: got {_shown(got[here].item())}, expected {_shown(wanted.item())}"
    if values.bound is None:
        return f"{text} (must be equal)", call
    error = abs(got[here].item() - wanted.item())
    bound = float(values.bound[here])
    text += f", error {_shown(error)} against a bound of {_shown(bound) if bound else '0 (values are only moved)'}"
    native = values.native[here].item()
    return (
        f"{text}\ntorch's own result there is {_shown(native)}, at worst {_largest(native_over):.2g} of its bound",
        call,
    )


def _over(error: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Error in bounds; 0 of 0 is 0, NaN (a non-finite value) stays out of the maximum."""
    return torch.nan_to_num(error / bound, nan=0.0, posinf=torch.inf)


def _largest(values: torch.Tensor) -> float:
    """The largest finite value."""
    return float(torch.where(torch.isfinite(values), values, 0.0).amax())


def _largest_or_inf(over: torch.Tensor, excused: torch.Tensor) -> torch.Tensor:
    return torch.where(excused, 0.0, over).amax()


def _statistics(absolute: float, relative: float, over: float, native_over: float) -> ErrorStatistics:
    numbers = (absolute, relative, over, native_over)
    return ErrorStatistics(*(number if math.isfinite(number) else None for number in numbers))


def _worse(one: ErrorStatistics, other: ErrorStatistics) -> ErrorStatistics:
    def pick(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else max(a, b)

    return ErrorStatistics(
        pick(one.max_abs_error, other.max_abs_error),
        pick(one.max_rel_error, other.max_rel_error),
        pick(one.worst_over_bound, other.worst_over_bound),
        pick(one.native_over_bound, other.native_over_bound),
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (torch.isnan(one) & torch.isnan(other))


def _bits(values: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that NaN equals itself and -0.0 does not equal 0.0."""
    if values.dtype.is_complex:
        values = torch.view_as_real(values).flatten(1)
    return values.view(_BITS[values.element_size()])


def _padded(count: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(count.to(torch.float64).reshape(1), (0, 4))


def _stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0].unsqueeze(0)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, complex)) else str(value)


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
