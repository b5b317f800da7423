"""Check of random results: a result is not made of earlier results of the same kernel, changed or reordered.

A kernel may store a few draws and return them in turn, slightly changed. Each result then has the right distribution,
but is not random. So three summaries of every result are stored and compared with those of earlier results. Which
elements and hash functions are used is secret. Efforts `quick` and `normal` use only `neighbours`:

likeness     up to 1024 elements at secret positions. Each element's rank among torch's values, from 0 to 1, becomes an
             angle, from 0 to 2 pi. The correlation of two results' angles is large if one equals the other, mirrors it
             (rank r becomes 1 - r), or is the other plus a constant (modulo the range). It is large too if only some
             elements are reused.
neighbours   rounded differences between neighbouring elements, hashed over windows of several. In each of 256 secret
             classes the least hash is kept. It does not depend on the window's position, direction or sign, nor on an
             added constant. A window is long enough that no window repeats by chance.
values       the least hash of single values, in the same kind of classes. It does not depend on the elements' order.

Probability of a false alarm: torch's own draw of the same call is compared with the same earlier calls. Given the
inputs, an honest draw and torch's own are exchangeable, element by element. So the difference of their likenesses is
a sum of terms of random sign. It exceeds :data:`DEVIATIONS` times the root of the sum of their squares with a
probability of less than exp(-DEVIATIONS**2 / 2) (Hoeffding). With 1024 remembered calls, 10 000 calls, two results
and four products of either sign that is 1e-9 a trial. Elements that depend on one another (attention with dropout)
widen the sum. This widening is measured on torch's own draws, and allowed.

Single values coincide by chance where a dtype or a generator has few. A generator may have as few as 2**20 values
where torch's has more. The bound is that of 2**20 values, or what torch's own draws share if that is more. A trial
makes up to ten million comparisons, so the bound grows with their number (Chernoff): all together less than 1e-9.
"""

from __future__ import annotations

import math
import secrets
from random import SystemRandom

import torch

from torchstone import operators
from torchstone.judging.stochastic.rank_statistics import in_order
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.tail_bound import unlikelihood

PLACES = 1024
"""Most elements of a result that `likeness` compares."""
CLASSES = 256
"""Secret classes of hashes; the least hash of each class is kept."""
REMEMBERED = 1024
"""Most earlier results that are kept. After that a new one replaces a random earlier one."""
DEVIATIONS = 9.0
"""Standard deviations from which a difference counts as reuse."""
EXPONENT = 24.0
"""The n-th comparison of single values raises a false alarm with a probability of less than exp(-EXPONENT) / n."""
MARGIN = 1.2
"""Factor on the width of likenesses that is measured on torch's draws."""
OWN_DRAWS = 24
"""Draws of torch's from which the width of likenesses and the usual number of repeated values are estimated."""
LEAST_GRID = 1 << 20
"""Least number of different values that a generator of continuous numbers must have."""
WINDOW_BITS = 64.0
"""Bits of information that a window must hold, so that no window repeats by chance."""
LONGEST_WINDOW = 256
"""Most differences in a window. If fewer bits fit into it than WINDOW_BITS, `neighbours` is not checked."""
_MOST_NEIGHBOUR_ELEMENTS = {"cpu": 1 << 16, "cuda": 1 << 20}
"""Most elements that `neighbours` examines, by device type."""
_MOST_VALUE_ELEMENTS = 1 << 18
"""Most elements that `values` examines."""
_SEGMENTS = 16
"""Number of segments, at secret positions, that are examined if a result has more elements than are examined."""
_MOST_BITS_PER_DIFFERENCE = 12.0
"""Most bits of information that one rounded difference counts for."""
_STEPS_PER_RANGE = 256
"""Rounding steps per range of values, for operators that draw evenly."""
_STEPS_PER_QUARTILES = 64
"""Rounding steps per distance between the quartiles, for other operators."""
_LARGEST_INT64 = torch.iinfo(torch.int64).max
_EMPTY_CLASS = -1
"""Stored for a class that no hash fell into."""
_LARGEST_DIFFERENCE = 1e15
"""Largest rounded difference: larger ones are clamped, so that they fit into int64."""


class Recurrence:
    """Compares one result of one case with its earlier ones, call after call."""

    def __init__(self, operator: str, own: torch.Tensor, *, all_checks: bool = True) -> None:
        """``own``: several draws of torch's for one call, ``(draws, *shape)``.

        ``all_checks``: also check `likeness` and `values`. They cost more, and every kernel of the red-team corpus that
        they find is also found by another check.
        """
        rows = real_rows(own[:OWN_DRAWS])
        self._elements = rows.shape[1]
        self._likeness = _Likeness(rows) if all_checks else None
        self._neighbours = _Neighbours(operator, rows)
        self._values = _Values(rows) if all_checks else None

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor, together: float = 1.0) -> str | None:
        """Return how a result repeats an earlier one, or None. Keep the result for later calls.

        ``own``: torch's draw for the same call. ``together``: the size of groups of elements that change together from
        draw to draw; such a group may also repeat as a whole.
        """
        result, drawn = real_rows(got.unsqueeze(0))[0], real_rows(own.unsqueeze(0))[0]
        if result.numel() != self._elements or drawn.numel() != self._elements or not self._elements:
            return None
        found = [None if self._likeness is None else self._likeness.mismatch_text(drawn, result)]
        found.append(self._neighbours.mismatch_text(drawn, result))
        found.append(None if self._values is None else self._values.mismatch_text(drawn, result, together))
        return next((text for text in found if text is not None), None)


class _Memory:
    """Stored rows, one for each earlier result, up to :data:`REMEMBERED`."""

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self._rows = torch.empty((REMEMBERED, width), dtype=dtype, device=device)
        self._count = 0

    @property
    def rows(self) -> torch.Tensor:
        return self._rows[: self._count]

    def add(self, row: torch.Tensor) -> None:
        place = self._count if self._count < REMEMBERED else secrets.randbelow(REMEMBERED)
        self._rows[place] = row
        self._count = min(REMEMBERED, self._count + 1)


class _Likeness:
    """Check `likeness`: correlates the angles of a result with those of earlier results, at secret positions."""

    def __init__(self, own: torch.Tensor) -> None:
        count = own.shape[1]
        places = SystemRandom().sample(range(count), min(count, PLACES))
        self._places = torch.tensor(places, dtype=torch.int64, device=own.device)
        sampled = own[:, self._places].to(torch.float64)
        ordered = in_order(sampled.reshape(-1))
        self._ordered = ordered[:: max(1, ordered.numel() // 4096)].contiguous()
        self._memory = _Memory(2 * len(places), torch.float32, own.device)
        self._allowed = DEVIATIONS * max(1.0, MARGIN * self._width(self._angles(sampled)))

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        angles = self._angles(torch.stack([own[self._places], got[self._places]]).to(torch.float64))
        deviations = _likeness_differences(angles[1] - angles[0], self._memory.rows)
        self._memory.add(angles[1].reshape(-1))
        largest = float(deviations.abs().amax()) if deviations.numel() else 0.0
        if largest <= self._allowed:
            return None
        return (
            f"the values are correlated with those of an earlier call: the correlation at {len(self._places)} places "
            f"is {largest:.3g} deviations from that of torch's own draw, bound {self._allowed:.3g}"
        )

    def _angles(self, values: torch.Tensor) -> torch.Tensor:
        """``(draws, 2, places)``: cosine and sine of each value's rank among torch's; ties get the mean rank."""
        below, upto = (torch.searchsorted(self._ordered, values, right=right) for right in (False, True))
        around = (below + upto).to(torch.float32) * (math.pi / max(1, self._ordered.numel()))
        return torch.stack([around.cos(), around.sin()], dim=1)

    @staticmethod
    def _width(angles: torch.Tensor) -> float:
        """Root mean square of the differences between torch's own draws. At most 1 if elements are independent."""
        draws = angles.shape[0]
        earlier = angles.reshape(draws, -1)
        found = [
            _likeness_differences(angles[i] - angles[i - 1], torch.cat([earlier[: i - 1], earlier[i + 1 :]]))
            for i in range(1, draws)
        ]
        return float(torch.cat(found).square().mean(dim=0).sqrt().amax()) if draws > 2 else 1.0


def _likeness_differences(moved: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    """``(earlier, 4)``: how much the likeness of two draws to each earlier draw differs, for four products of angles.

    ``moved``: cosines and sines of one draw minus those of the other. The unit is a bound on the root of the sum of
    squares of the terms, since the earlier draw's cosine and sine are a vector of length 1.
    """
    cosines, sines = moved
    columns = [(cosines, sines), (sines, -cosines), (cosines, -sines), (sines, cosines)]
    products = earlier @ torch.stack([torch.cat(column) for column in columns], dim=1)
    return products / moved.square().sum().sqrt().clamp(min=1e-6)


class _Neighbours:
    """Check `neighbours`: compares hashed windows of differences between neighbours with earlier results."""

    def __init__(self, operator: str, own: torch.Tensor) -> None:
        device = own.device
        self._segments = _Segments(
            own.shape[1], _MOST_NEIGHBOUR_ELEMENTS.get(device.type, _MOST_NEIGHBOUR_ELEMENTS["cpu"])
        )
        self._range, self._step = _scale(operator, own.reshape(-1))
        values = self._segments.of(own[0]).to(torch.float64)
        self._window = self._window_length(values) if self._step > 0.0 else 0
        self._factors = [_secret_odd_factor() for _ in range(LONGEST_WINDOW.bit_length())]
        self._classes = _Classes()
        self._memory = _Memory(CLASSES, torch.int32, device)
        self._repeated_windows = [0, 0]
        """Number of repeated windows in all calls so far: of the candidate's results, of torch's draws."""

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        if not self._window:
            return None
        rows = [
            self._classes.least(self._windows(self._segments.of(values).to(torch.float64))) for values in (got, own)
        ]
        earlier = self._memory.rows
        repeated = torch.stack([_shared_classes(row, earlier).any(dim=0).sum() for row in rows]).tolist()
        self._memory.add(rows[0])
        self._repeated_windows = [
            total + number for total, number in zip(self._repeated_windows, repeated, strict=True)
        ]
        excess, excess_in_all = repeated[0] - repeated[1], self._repeated_windows[0] - self._repeated_windows[1]
        allowed = CLASSES / 4 + DEVIATIONS * math.sqrt(self._window * sum(self._repeated_windows))
        if excess <= CLASSES / 2 and excess_in_all <= allowed:
            return None
        return (
            f"sequences of adjacent values repeat those of earlier calls: {repeated[0]} of {CLASSES} examined ones, "
            f"of torch's own draw {repeated[1]} "
            f"(in all calls {self._repeated_windows[0]}, of torch's draws {self._repeated_windows[1]})"
        )

    def _window_length(self, values: torch.Tensor) -> int:
        """Differences in a window, a power of two. 0: windows would be too long, or hold too few bits."""
        steps = self._rounded_differences(values)
        if steps.numel() < 2:
            return 0
        counts = torch.unique_consecutive(in_order(steps), return_counts=True)[1].to(torch.float64)
        same = float((counts * (counts - 1)).sum()) / (steps.numel() * (steps.numel() - 1))
        bits = min(_MOST_BITS_PER_DIFFERENCE, -math.log2(same)) if same > 0.0 else _MOST_BITS_PER_DIFFERENCE
        if bits * LONGEST_WINDOW < WINDOW_BITS:
            return 0
        length = 1 << math.ceil(math.log2(WINDOW_BITS / bits))
        return length if 4 * length <= values.numel() else 0

    def _rounded_differences(self, values: torch.Tensor) -> torch.Tensor:
        steps = values.diff()
        if self._range:
            steps -= (steps / self._range).round_().mul_(self._range)
        return (
            steps.div_(self._step)
            .nan_to_num_(nan=0.0)
            .clamp_(-_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE)
            .round_()
            .to(torch.int64)
        )

    def _windows(self, values: torch.Tensor) -> torch.Tensor:
        """One hash for each window. Reversing the window, or changing all its signs, does not change the hash."""
        ahead = back = self._rounded_differences(values)
        length, factors = 1, iter(self._factors)
        while length < self._window:
            factor = next(factors)
            ahead = torch.add(ahead[:-length], ahead[length:], alpha=factor)
            back = torch.add(back[length:], back[:-length], alpha=factor)
            length *= 2
        return ahead * back


def _scale(operator: str, values: torch.Tensor) -> tuple[float, float]:
    """The range of the values, and the step to which differences are rounded.

    The range is 0 for operators that do not draw evenly. For the others, differences are taken modulo the range.
    """
    if values.numel() < 2 or not bool(torch.isfinite(values).all()):
        return 0.0, 0.0
    whole = float(values.amax()) - float(values.amin())
    if operators.traits(operator).draws_evenly:
        whole *= (values.numel() + 1) / (values.numel() - 1)  # the range exceeds that of the values by this, on average
        return whole, whole / _STEPS_PER_RANGE
    ordered = in_order(values[:: max(1, values.numel() // _MOST_VALUE_ELEMENTS)].to(torch.float64))
    quartiles = float(ordered[3 * (len(ordered) - 1) // 4] - ordered[(len(ordered) - 1) // 4])
    return 0.0, (quartiles or whole) / _STEPS_PER_QUARTILES


class _Values:
    """Check `values`: compares hashed single values with earlier results, whatever their order."""

    def __init__(self, own: torch.Tensor) -> None:
        self._segments = _Segments(own.shape[1], _MOST_VALUE_ELEMENTS)
        self._classes = _Classes()
        self._memory = _Memory(CLASSES, torch.int32, own.device)
        held = -math.expm1(-min(own.shape[1], _MOST_VALUE_ELEMENTS) / LEAST_GRID)
        self._by_chance = max(CLASSES * held / (2.0 - held), self._classes_shared_by(own))
        self._comparisons = 0

    def _classes_shared_by(self, own: torch.Tensor) -> float:
        """Upper estimate of the number of classes that two of torch's own draws share on average."""
        rows = torch.stack([self._class_hashes(values) for values in own])
        shared = sum(int(_shared_classes(row, rows[:place]).sum()) for place, row in enumerate(rows))
        pairs = len(rows) * (len(rows) - 1) / 2
        return (shared + 4.0 * math.sqrt(shared) + 10.0) / pairs if pairs else math.inf

    def _class_hashes(self, values: torch.Tensor) -> torch.Tensor:
        return self._classes.least(_as_integers(self._segments.of(values)))

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor, together: float) -> str | None:
        """Return a message if the result shares too many values with one earlier result, or None.

        Allowed is what chance explains, plus twice what torch's own draw shares with an earlier result.
        """
        usual = 6.0 * together + self._by_chance + DEVIATIONS * math.sqrt(self._by_chance * together)
        if usual >= CLASSES:
            return None
        rows = [self._class_hashes(values) for values in (got, own)]
        earlier = self._memory.rows
        most, torchs = 0, 0
        if len(earlier):
            most, torchs = torch.stack([_shared_classes(row, earlier).sum(dim=1).amax() for row in rows]).tolist()
        self._memory.add(rows[0])
        self._comparisons += len(earlier)
        allowed = usual + 2.0 * torchs
        odds = unlikelihood((most - 2.0 * torchs) / together, self._by_chance / together)
        if most <= allowed or odds <= EXPONENT + math.log(self._comparisons):
            return None
        return (
            f"values repeat those of an earlier call: {most} of {CLASSES} examined values occurred in one call, bound "
            f"{allowed:.3g}"
        )


class _Classes:
    """Hashes numbers into secret classes and keeps the least hash of each class, whatever the order of the numbers."""

    def __init__(self) -> None:
        self._factors = _secret_odd_factor(), _secret_odd_factor()

    def least(self, numbers: torch.Tensor) -> torch.Tensor:
        """``(CLASSES,)``: the last 32 bits of the least hash of each class."""
        hashed = numbers * self._factors[0]
        hashed = (hashed ^ (hashed >> 32)).mul_(self._factors[1])
        hashed ^= hashed >> 29
        classes = (hashed >> 20) & (CLASSES - 1)
        empty = torch.full((CLASSES,), _LARGEST_INT64, dtype=torch.int64, device=numbers.device)
        return empty.scatter_reduce_(0, classes, hashed, "amin").to(torch.int32)


def _shared_classes(row: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    """Booleans ``(earlier, classes)``: whether the row and an earlier row have the same hash in a class."""
    return earlier == row.masked_fill(row == _EMPTY_CLASS, _EMPTY_CLASS - 1)


class _Segments:
    """Selects segments at secret positions, spread over a result of more than ``most`` elements; else all of it."""

    def __init__(self, elements: int, most: int) -> None:
        length, part = most // _SEGMENTS, elements // _SEGMENTS
        begins = [part * k + secrets.randbelow(part - length + 1) for k in range(_SEGMENTS)] if part > length else []
        self._slices = [slice(begin, begin + length) for begin in begins]

    def of(self, values: torch.Tensor) -> torch.Tensor:
        return torch.cat([values[each] for each in self._slices]) if self._slices else values


def _secret_odd_factor() -> int:
    """A secret odd factor: multiplying by it modulo 2**64 maps different numbers to different numbers."""
    return secrets.randbits(62) | 1


def _as_integers(values: torch.Tensor) -> torch.Tensor:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.contiguous().view(integers).to(torch.int64)
