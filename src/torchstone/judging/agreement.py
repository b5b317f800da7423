"""Does what a call gave agree with what it must give?

Metadata first (number and kind of outputs, dtype, shape), then non-finite positions, then values against the
bounds of :mod:`torchstone.judging.bounds`, then the arguments that the operator writes to, then everything that
it must leave alone, bit for bit. The first thing that is wrong is the answer.

A floating-point element is accepted if it is within its bound of the exact value, or is torch's own value, or the
exact value rounded to the dtype. So a result that overflows float16 may be infinite where torch's is, or finite
where the exact value is; NaN stands only for NaN, and an infinity only for one of the same sign.

Many calls are first screened against torch's own results, all together; the calls that pass cost no float64
evaluation, and the others are compared in full, one by one. Where bounds are asked for, only results equal to torch's
own pass, which every bound accepts, and only once it is known how far torch itself is off.

Aliasing of outputs is reported by the worker and judged in the trial; strides are not judged.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import torch

from torchstone.judging import bounds, ties
from torchstone.judging.evaluation import Place, stacked
from torchstone.judging.probing import pieces
from torchstone.judging.reference import Expected, ExpectedOutput, Screen, Values
from torchstone.schema import ErrorStatistics

Reason = Literal["values", "precision", "nonfinite", "shape", "dtype", "structure", "mutation"]

RELATIVE_ERROR_FLOOR = 1e-10
"""Added to the exact magnitude where a relative error is reported."""
_UNKNOWN = ErrorStatistics()
_TALLIED = 7
"""Numbers that one transfer from the device brings for each tensor."""
_SAMPLED_TOGETHER = 1 << 15
"""Elements of a result whose distances are screened together."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Agreement:
    """Every call gave the right result and left the right things alone."""

    errors: ErrorStatistics
    """Of the calls that were compared in full; all None if screening accepted every one."""
    calls: int = 1


@dataclass(frozen=True)
class Mismatch:
    """A call did not."""

    reason: Reason
    message: str
    errors: ErrorStatistics = _UNKNOWN
    call: int = 0
    """Which of the compared calls: the first one that is wrong."""


def compare(
    expected: Expected,
    outputs: Sequence[Any],
    inputs_after: Sequence[torch.Tensor],
    values: dict[Place, Values] | None = None,
) -> Agreement | Mismatch:
    """Compare one call in full: its flattened outputs, and the flat storage of every tensor argument after it.

    Everything lies on the reference's device. One transfer from it, unless there is something to look at closely.
    ``values`` are those of ``expected``, for who compares several results with the same.
    """
    misfit = _metadata_misfit(expected.outputs, outputs)
    if misfit is not None:
        return misfit
    random = _random_mismatch(expected, outputs, inputs_after)
    if isinstance(random, Mismatch):
        return random
    wanted = {} if random or expected.batch.reference.undefined else expected.values() if values is None else values
    subjects = list(_subjects(wanted, outputs, inputs_after))
    changes = [_Change(position, expected, inputs_after[position]) for position in _kept(expected)]
    tallies = [_tally(subject) for subject in subjects]
    counts = [torch.nn.functional.pad(change.count().reshape(1), (0, _TALLIED - 1)) for change in changes]
    rows = torch.stack([*tallies, *counts]).tolist() if subjects or changes else []
    errors = ErrorStatistics(0.0, 0.0, 0.0, 0.0)
    for subject, (beyond, *statistics, rms, bias) in zip(subjects, rows, strict=False):
        right = beyond == 0 or _tied(expected, subject)
        found = _statistics(*statistics) if right else _closer_look(subject)
        found = _together(subject, found, rms, bias) if isinstance(found, ErrorStatistics) else found
        if isinstance(found, Mismatch):
            return found
        errors = worst_of(errors, found)
    for change, row in zip(changes, rows[len(subjects) :], strict=True):
        if row[0]:
            return change.mismatch()
    return Agreement(errors)


def compare_many(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> Agreement | Mismatch:
    """Compare several calls of one case: in full those expected with bounds, the others as far as need be."""
    errors = _UNKNOWN
    for call, passed in enumerate(_screened(expected, outputs, inputs_after)):
        if passed:
            continue
        found = compare(expected[call], outputs[call], inputs_after[call])
        if isinstance(found, Mismatch):
            return replace(found, call=call)
        errors = worst_of(errors, found.errors)
    return Agreement(errors, len(expected))


def worst_of(one: ErrorStatistics, other: ErrorStatistics) -> ErrorStatistics:
    """The larger of each number of results that are right; None counts for nothing."""
    names = (
        "max_abs_error",
        "max_rel_error",
        "worst_over_bound",
        "native_over_bound",
        "rms_over_bound",
        "bias_over_bound",
    )
    known = {name: [getattr(each, name) for each in (one, other) if getattr(each, name) is not None] for name in names}
    return ErrorStatistics(**{name: max(values, default=None) for name, values in known.items()})


def _tied(expected: Expected, subject: _Subject) -> bool:
    values = subject.values
    return values.bound is None and ties.accepts(expected.call, subject.place, subject.got, values.native)


def _random_mismatch(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> Mismatch | bool:
    """For operators that draw: a result of another distribution. True: judged and right; False: nothing is drawn."""
    lottery, tensors = expected.batch.reference.lottery, expected.batch.evaluation.tensors
    if lottery is None or lottery.idle:
        return False
    in_full = expected.with_bounds or lottery.idle is None
    elements = max((tensor[0].numel() for tensor in tensors.values()), default=0)
    if in_full:
        draws = lottery.draws(expected.call, elements)
    else:
        draws = {place: tensor[expected.index].unsqueeze(0) for place, tensor in tensors.items()}
    if draws is None:
        return False
    found = lottery.misfit(draws, outputs, inputs_after, in_full)
    if found is None:
        return True
    place, text = found
    return Mismatch("values" if place.kind == "output" else "mutation", f"{place.kind} {place.position}: {text}")


# Screening: many calls at once, against torch's own results.


def _screened(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> Iterator[bool]:
    """For each call, whether it is certainly right."""
    for begin, end in _stretches(expected):
        if _may_be_screened(expected[begin:end], outputs[begin:end]):
            yield from _screen_stretch(expected[begin:end], outputs[begin:end], inputs_after[begin:end]).tolist()
        else:
            yield from [False] * (end - begin)


def _may_be_screened(expected: Sequence[Expected], outputs: Sequence[Sequence[Any]]) -> bool:
    """Not where bounds are asked for and no call told yet how far torch itself is off: the record wants to say it."""
    reference = expected[0].batch.reference
    if not reference.screens or (expected[0].with_bounds and not reference.errors_known):
        return False
    return all(_metadata_fits(e, o) for e, o in zip(expected, outputs, strict=True))


def _stretches(expected: Sequence[Expected]) -> Iterator[tuple[int, int]]:
    """Where consecutive calls of one batch begin and end."""
    begin = 0
    for end in range(1, len(expected) + 1):
        last = expected[end - 1]
        if end == len(expected) or expected[end] != replace(last, index=last.index + 1):
            yield begin, end
            begin = end


def _screen_stretch(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> torch.Tensor:
    """One boolean per call, on the device. Where bounds are asked for, only torch's own values pass: any bound does."""
    batch, first, exactly = expected[0].batch, expected[0].index, expected[0].with_bounds
    rows = slice(first, first + len(expected))
    passed = torch.ones(len(outputs), dtype=torch.bool, device=batch.reference.device)
    for place, native in batch.evaluation.tensors.items():
        source = outputs if place.kind == "output" else inputs_after
        got = stacked([of_call[place.position] for of_call in source])
        screen = None if exactly else batch.reference.screen(place, native.dtype, native[0].numel())
        passed &= _all_of_each(native[rows], got, screen)
    written = batch.reference.contract.mutated
    for position in range(len(batch.calls[0].tensors)):
        if position not in written:
            before = stacked([call.tensors[position].storage for call in batch.calls[rows]])
            after = stacked([of_call[position] for of_call in inputs_after])
            passed &= _all_of_each(_bits(before), _bits(after), None)
    return passed


def _all_of_each(native: torch.Tensor, got: torch.Tensor, screen: Screen | None) -> torch.Tensor:
    """Per call of a ``(calls, ...)`` tensor, whether every element passes the screen. Piece by piece, as bytes."""
    calls = native.shape[0]
    passed = torch.ones(calls, dtype=torch.bool, device=native.device)
    if screen is None and torch.equal(native, got):
        return passed
    flat_native, flat_got = native.reshape(calls, -1), got.reshape(calls, -1)
    for piece in pieces(flat_native.shape[1], native.device):
        near = _near(flat_native[:, piece], flat_got[:, piece], screen, piece)
        passed &= near.view(torch.uint8).amin(dim=1).to(torch.bool)  # Many times faster than all().
    return passed if screen is None else passed & _small_together(flat_native, flat_got, screen)


def _near(native: torch.Tensor, got: torch.Tensor, screen: Screen | None, piece: slice) -> torch.Tensor:
    if screen is None:
        return got == native
    n, g, allowed = _distances(native, got, screen, piece)
    # Strictly less: an infinity is never less than another, and equality is accepted anyway.
    return ((g - n).abs() < allowed) | (got == native)


def _distances(
    native: torch.Tensor, got: torch.Tensor, screen: Screen, piece: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both as float32 or wider, and how far apart they may be."""
    kind = torch.promote_types(native.dtype, torch.float32)
    n, g = native.to(kind), got.to(kind)
    allowed = n.abs().add_(screen.level).mul_(screen.share)
    return n, g, allowed if screen.inside is None else allowed.mul_(screen.inside[piece])


def _small_together(native: torch.Tensor, got: torch.Tensor, screen: Screen) -> torch.Tensor:
    """Per call, whether the distances pass together. Sound: a full comparison also allows twice torch's own.

    Of large results, a share of the elements that nobody can foresee is looked at: this must stay cheap.
    """
    step = max(1, native.shape[1] // _SAMPLED_TOGETHER)
    sample = slice(secrets.randbelow(step), None, step)
    n, g, allowed = _distances(native[:, sample], got[:, sample], screen, sample)
    distance = (g - n).div_(allowed).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    count = max(1, distance.shape[1])
    small = distance.abs().square_().sum(dim=1) <= screen.rms * screen.rms * count
    if distance.is_complex():
        return small
    away = distance * n.sign()
    return small & (distance.sum(dim=1).abs() <= screen.bias * count) & (away.sum(dim=1).abs() <= screen.bias * count)


# Metadata.


def _metadata_fits(expected: Expected, outputs: Sequence[Any]) -> bool:
    """The quick form, for many calls: compares with torch's own leaves where these are tensors."""
    leaves = expected.batch.evaluation.results[expected.index]
    if len(leaves) != len(outputs):
        return not leaves
    return all(
        isinstance(got, torch.Tensor) and got.dtype == leaf.dtype and got.shape == leaf.shape
        if isinstance(leaf, torch.Tensor)
        else _plain_misfit(leaf, got) is None
        for leaf, got in zip(leaves, outputs, strict=True)
    )


def _metadata_misfit(wanted: Sequence[ExpectedOutput], outputs: Sequence[Any]) -> Mismatch | None:
    """Structure, then dtypes, then shapes, then plain values. An operator without returns may return anything."""
    if not wanted:
        return None
    if len(outputs) != len(wanted):
        return Mismatch("structure", f"returned {_count(len(outputs), 'output')}, expected {len(wanted)}")
    misfits = [_leaf_misfit(want, got) for want, got in zip(wanted, outputs, strict=True)]
    found = [(position, misfit) for position, misfit in enumerate(misfits) if misfit is not None]
    if not found:
        return None
    order = ("structure", "dtype", "shape", "values")
    position, (reason, text) = min(found, key=lambda item: order.index(item[1][0]))
    return Mismatch(reason, f"output {position}: {text}")


def _leaf_misfit(wanted: ExpectedOutput, got: Any) -> tuple[Reason, str] | None:
    if wanted.dtype is None:
        return _plain_misfit(wanted.native, got)
    if not isinstance(got, torch.Tensor):
        return "structure", f"got a {_kind(got)}, expected a tensor"
    if got.dtype != wanted.dtype:
        return "dtype", f"got {_dtype_name(got.dtype)}, expected {_dtype_name(wanted.dtype)}"
    if got.shape != wanted.shape:
        return "shape", f"got shape {list(got.shape)}, expected {list(wanted.shape or ())}"
    return None


def _plain_misfit(wanted: Any, got: Any) -> tuple[Reason, str] | None:
    if type(got) is not type(wanted):
        return "structure", f"got a {_kind(got)}, expected a {_kind(wanted)}"
    same = got == wanted or (got != got and wanted != wanted)
    return None if same else ("values", f"got {got!r}, expected {wanted!r}")


# Values.


@dataclass(frozen=True, eq=False)
class _Subject:
    """One tensor beside what it must hold."""

    place: Place
    values: Values
    got: torch.Tensor


def _subjects(
    wanted: dict[Place, Values], outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> Iterator[_Subject]:
    """Returned tensors first, then written storages."""
    for place, values in wanted.items():
        source = outputs if place.kind == "output" else inputs_after
        yield _Subject(place, values, source[place.position])


def _tally(subject: _Subject) -> torch.Tensor:
    """Elements not plainly within the bound; max error, relative error, error/bound; torch's error/bound; rms, bias."""
    got, native = subject.got.reshape(-1), subject.values.native.reshape(-1)
    centre = subject.values.centre.reshape(-1)
    bound = None if subject.values.bound is None else subject.values.bound.reshape(-1)
    total = torch.zeros(5, dtype=torch.float64, device=got.device)
    for piece in pieces(got.numel(), got.device):
        part = _tally_piece(got[piece], native[piece], centre[piece], None if bound is None else bound[piece])
        total = torch.cat([total[:1] + part[:1], torch.maximum(total[1:], part[1:])])
    return torch.cat([total, _rms_and_bias(subject)])


def _rms_and_bias(subject: _Subject) -> torch.Tensor:
    """Of all errors together, divided by what is allowed; 0 where nothing is asked."""
    spread, got, centre = subject.values.spread, subject.got.reshape(-1), subject.values.centre.reshape(-1)
    if spread is None:
        return torch.zeros(2, dtype=torch.float64, device=got.device)
    weight = spread.weight.reshape(-1)
    total = torch.zeros(4, dtype=torch.float64, device=got.device)
    for piece in pieces(got.numel(), got.device):
        error = got[piece].to(centre.dtype) - centre[piece]
        total += bounds.moments(error, weight[piece], centre[piece])
    return bounds.rms_and_bias(total) / torch.stack([spread.rms, spread.bias])


def _together(subject: _Subject, found: ErrorStatistics, rms: float, bias: float) -> ErrorStatistics | Mismatch:
    """The errors of a result whose every element is within its bound."""
    statistics = msgspec.structs.replace(found, rms_over_bound=rms, bias_over_bound=bias)
    spread = subject.values.spread
    if spread is None or (rms <= 1.0 and bias <= 1.0):
        return statistics
    name, over, allowed = ("root mean square", rms, spread.rms) if rms >= bias else ("mean", bias, spread.bias)
    own = _rms_and_bias(replace(subject, got=subject.values.native))[0 if rms >= bias else 1]
    error = (subject.got.to(subject.values.centre.dtype) - subject.values.centre).abs() / spread.weight
    index = _unravelled(int(error.nan_to_num(nan=0.0, posinf=0.0).argmax()), subject.got.shape)
    got, wanted = subject.got[index].item(), subject.values.centre[index].item()
    message = (
        f"output {subject.place.position}: every element is within its bound, but the {name} of the errors is "
        f"{_shown(over * float(allowed))} typical ones of an honest kernel, bound {_shown(float(allowed))}: lower "
        f"precision inside, or a bias; worst at {list(index)}: got {got:.9g}, expected {wanted:.9g}\n"
        f"torch's own is at {float(own):.2g} of the bound"
    )
    return Mismatch("precision", message, statistics)


def _tally_piece(
    got: torch.Tensor, native: torch.Tensor, centre: torch.Tensor, bound: torch.Tensor | None
) -> torch.Tensor:
    error = (got.to(centre.dtype) - centre).abs()
    relative = (error / (centre.abs() + RELATIVE_ERROR_FLOOR)).amax()
    if bound is None:
        zero = error.new_zeros(())
        return torch.stack([(got != native).sum().to(torch.float64), error.amax(), relative, zero, zero])
    native_over = _over((native.to(centre.dtype) - centre).abs(), bound)
    beyond = (~(error <= bound)).sum().to(torch.float64)
    return torch.stack([beyond, error.amax(), relative, _over(error, bound).amax(), native_over.amax()])


def _closer_look(subject: _Subject) -> ErrorStatistics | Mismatch:
    """What the plain test could not accept: non-finite values that are right, or a disagreement."""
    values, got = subject.values, subject.got
    centre = values.centre
    wrong = _wrong(values, got)
    error = (got.to(centre.dtype) - centre).abs()
    bound = values.bound if values.bound is not None else torch.zeros_like(error)
    over = _over(error, bound)
    native_over = _over((values.native.to(centre.dtype) - centre).abs(), bound)
    statistics = _statistics(
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
    message = _describe(subject, wrong, int(severity.argmax()), _largest_finite(native_over))
    return Mismatch(reason if subject.place.kind == "output" else "mutation", message, statistics)


def _with_wrong_errors(statistics: ErrorStatistics, errors: torch.Tensor) -> ErrorStatistics:
    """Tells rounding that is a little too coarse from a result that has nothing to do with the right one."""
    finite = errors[torch.isfinite(errors)]
    if not finite.numel():
        return statistics
    smallest, largest = (float(edge) for edge in torch.aminmax(finite))
    return msgspec.structs.replace(statistics, smallest_wrong_error=smallest, largest_wrong_error=largest)


def _wrong(values: Values, got: torch.Tensor) -> torch.Tensor:
    """The acceptance rule in full."""
    if values.bound is None:
        return got != values.native
    centre = values.centre
    close = (got.to(centre.dtype) - centre).abs() <= values.bound
    accepted = close | _same(got, values.native) | _same(got, centre.to(got.dtype))
    if got.dtype.is_complex:  # Which part of a complex number overflows is nobody's promise.
        return ~(accepted | (~torch.isfinite(got) & ~torch.isfinite(values.native)))
    at_the_edge = torch.isfinite(centre) & (centre.abs() + values.bound >= torch.finfo(got.dtype).max)
    return ~(accepted | (at_the_edge & torch.isinf(got) & ((got > 0) == (centre > 0))))


def _describe(subject: _Subject, wrong: torch.Tensor, worst: int, native_over: float) -> str:
    """How many are wrong, where it is worst, got, expected, error against bound, how torch fares."""
    values = subject.values
    index = _unravelled(worst, subject.got.shape)
    got, native, wanted = subject.got[index].item(), values.native[index].item(), values.centre[index].item()
    name = f"{subject.place.kind} {subject.place.position}" + (" after the call" * (subject.place.kind == "argument"))
    where = f"{name}: {int(wrong.sum())} of {_count(wrong.numel(), 'element')} wrong; worst at {list(index)}: "
    if values.bound is None:
        return f"{where}got {got}, expected {native}"
    bound = float(values.bound[index])
    allowed = _shown(bound) if bound else "0 (only moved values are right here)"
    text = f"{where}got {_shown(got)}, expected {_shown(wanted)}, error {_shown(abs(got - wanted))}, bound {allowed}"
    return f"{text}\ntorch's own result there: {_shown(native)}; torch is at worst at {native_over:.2g} of its bound"


# What must not change.


@dataclass(frozen=True, eq=False)
class _Change:
    """An argument that must be, bit for bit, as it was drawn."""

    position: int
    expected: Expected
    after: torch.Tensor

    def count(self) -> torch.Tensor:
        """How many elements of the storage changed; a scalar on the device."""
        return self._differs().sum().to(torch.float64)

    def mismatch(self) -> Mismatch:
        differs = self._differs()
        first = int(differs.to(torch.uint8).argmax())
        before, after = self._before[first].item(), self.after[first].item()
        message = (
            f"argument {self.position} must not change: {int(differs.sum())} of {differs.numel()} elements of its "
            f"storage did, the first at {first}: {_shown(before)} became {_shown(after)}"
        )
        return Mismatch("mutation", message)

    @property
    def _before(self) -> torch.Tensor:
        return self.expected.call.tensors[self.position].storage

    def _differs(self) -> torch.Tensor:
        differs = (_bits(self._before.unsqueeze(0)) != _bits(self.after.unsqueeze(0)))[0]
        return differs.reshape(-1, 2).any(dim=1) if self.after.dtype.is_complex else differs


def _kept(expected: Expected) -> list[int]:
    """Tensor arguments that the operator only reads."""
    written = expected.batch.reference.contract.mutated
    return [position for position in range(len(expected.call.tensors)) if position not in written]


def _bits(storages: torch.Tensor) -> torch.Tensor:
    """``(calls, extent)`` as integers, so that NaN equals itself and -0.0 does not equal 0.0."""
    if storages.dtype.is_complex:
        storages = torch.view_as_real(storages).flatten(1)
    return storages.view(_BITS[storages.element_size()])


# Small words.


def _over(error: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Error in bounds; 0 of 0 is 0, and what is no number stays out of a maximum."""
    return torch.nan_to_num(error / bound, nan=0.0, posinf=torch.inf)


def _largest_finite(values: torch.Tensor) -> float:
    return float(torch.where(torch.isfinite(values), values, 0.0).amax())


def _statistics(absolute: float, relative: float, over: float, native_over: float) -> ErrorStatistics:
    numbers = (absolute, relative, over, native_over)
    return ErrorStatistics(*(number if math.isfinite(number) else None for number in numbers))


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (torch.isnan(one) & torch.isnan(other))


def _unravelled(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, complex)) else str(value)


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
