"""Check of random results: a result is not made of earlier results of the same kernel, changed or reordered.

A kernel that stores a few draws and returns them in turn, changed a little, is right in every call and not random.
Three things are kept of every draw, in secret, and compared with those of earlier ones. Effort `quick` and `normal`
keep only `neighbours`:

likeness     elements in up to 1024 secret places, as angles: their rank among torch's values, once around the circle.
             The product of two draws' angles adds up if one is the other, one minus the other, or the other plus a
             number (modulo the range), whole or in part, in one element's place as in all.
neighbours   of the differences between neighbours, rounded: the least hash of a window of some, in each of 256 secret
             classes. The same wherever the window stands, in which direction, with what sign and whatever was added.
             A window is so long that its values do not come again by chance.
values       the least hash of a single value, likewise: the same for any order of the elements.

Probability of a false alarm: torch's own draw of the same call is compared with the same earlier calls. Given the
inputs, an honest draw and torch's own are exchangeable, element by element. So the difference of their likenesses is
a sum of terms of random sign. It exceeds :data:`DEVIATIONS` times the root of the sum of their squares with a
probability of less than exp(-DEVIATIONS**2 / 2) (Hoeffding). With 1024 remembered calls, 10 000 calls, two results
and four products of either sign that is 1e-9 a trial. Elements that depend on one another (attention with dropout)
widen the sum; this is measured on torch's own draws, and allowed.

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
CLASSES = 256
REMEMBERED = 1024
"""Calls that are remembered; then a new one replaces a random earlier one."""
DEVIATIONS = 9.0
EXPONENT = 24.0
"""The n-th comparison of single values is beyond chance with a probability of less than exp(-EXPONENT) / n."""
MARGIN = 1.2
"""Factor on the measured width of likenesses."""
OWN_DRAWS = 24
"""Draws of torch's from which the width of likenesses and the usual repetition are learnt."""
LEAST_GRID = 1 << 20
"""Different values that a generator of continuous numbers must have."""
WINDOW_BITS = 64.0
"""Bits of information that a window must hold, so that none comes again by chance."""
LONGEST_WINDOW = 256
_NEIGHBOURS = {"cpu": 1 << 16, "cuda": 1 << 20}
"""Elements whose neighbours are looked at."""
_VALUES = 1 << 18
"""Elements whose values are looked at."""
_STRETCHES = 16
"""Number of stretches at secret places, where not all elements are examined."""
_ELEMENT_BITS = 12.0
"""The most that a rounded difference counts for."""
_STEPS_PER_RANGE = 256
_STEPS_PER_QUARTILES = 64
_LARGEST = torch.iinfo(torch.int64).max
_EMPTY = -1
"""What stands for a class without a number."""
_LARGEST_STEP = 1e15


class Recurrence:
    """Compares one result of one case with its earlier ones, call after call."""

    def __init__(self, operator: str, own: torch.Tensor, *, all_checks: bool = True) -> None:
        """``own``: several draws of torch's of one call, ``(draws, *shape)``.

        ``all_checks``: also likeness and single values. They find no kernel of the corpus alone, and cost more.
        """
        rows = real_rows(own[:OWN_DRAWS])
        self._elements = rows.shape[1]
        self._likeness = _Likeness(rows) if all_checks else None
        self._neighbours = _Neighbours(operator, rows)
        self._values = _Values(rows) if all_checks else None

    def misfit(self, own: torch.Tensor, got: torch.Tensor, together: float = 1.0) -> str | None:
        """How a result repeats an earlier call; None: it does not. The result is remembered. ``own``: torch's draw.

        ``together``: how many elements change together from draw to draw, and may come again together.
        """
        result, drawn = real_rows(got.unsqueeze(0))[0], real_rows(own.unsqueeze(0))[0]
        if result.numel() != self._elements or drawn.numel() != self._elements or not self._elements:
            return None
        found = [None if self._likeness is None else self._likeness.misfit(drawn, result)]
        found.append(self._neighbours.misfit(drawn, result))
        found.append(None if self._values is None else self._values.misfit(drawn, result, together))
        return next((text for text in found if text is not None), None)


class _Memory:
    """One row for each earlier call, up to :data:`REMEMBERED`."""

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
    """Products of the angles of two draws, in secret places."""

    def __init__(self, own: torch.Tensor) -> None:
        count = own.shape[1]
        places = SystemRandom().sample(range(count), min(count, PLACES))
        self._places = torch.tensor(places, dtype=torch.int64, device=own.device)
        sampled = own[:, self._places].to(torch.float64)
        ordered = in_order(sampled.reshape(-1))
        self._ordered = ordered[:: max(1, ordered.numel() // 4096)].contiguous()
        self._memory = _Memory(2 * len(places), torch.float32, own.device)
        self._allowed = DEVIATIONS * max(1.0, MARGIN * self._width(self._angles(sampled)))

    def misfit(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        angles = self._angles(torch.stack([own[self._places], got[self._places]]).to(torch.float64))
        beyond = _differences(angles[1] - angles[0], self._memory.rows)
        self._memory.add(angles[1].reshape(-1))
        largest = float(beyond.abs().amax()) if beyond.numel() else 0.0
        if largest <= self._allowed:
            return None
        return (
            f"the values follow those of an earlier call: the likeness in {len(self._places)} places is "
            f"{largest:.3g} deviations from that of torch's own draw, bound {self._allowed:.3g}"
        )

    def _angles(self, values: torch.Tensor) -> torch.Tensor:
        """``(draws, 2, places)``: cosine and sine of the rank among torch's values, ties in the middle."""
        below, upto = (torch.searchsorted(self._ordered, values, right=right) for right in (False, True))
        around = (below + upto).to(torch.float32) * (math.pi / max(1, self._ordered.numel()))
        return torch.stack([around.cos(), around.sin()], dim=1)

    @staticmethod
    def _width(angles: torch.Tensor) -> float:
        """Root mean square of the differences between torch's own draws: 1 at most where elements are independent."""
        draws = angles.shape[0]
        earlier = angles.reshape(draws, -1)
        found = [
            _differences(angles[i] - angles[i - 1], torch.cat([earlier[: i - 1], earlier[i + 1 :]]))
            for i in range(1, draws)
        ]
        return float(torch.cat(found).square().mean(dim=0).sqrt().amax()) if draws > 2 else 1.0


def _differences(moved: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    """``(earlier, 4)``: by how much two draws ``moved`` apart differ in their likeness to each earlier one.

    In units of a bound on the root of the sum of squares: the angles of the earlier draw have length 1.
    """
    cosines, sines = moved
    columns = [(cosines, sines), (sines, -cosines), (cosines, -sines), (sines, cosines)]
    products = earlier @ torch.stack([torch.cat(column) for column in columns], dim=1)
    return products / moved.square().sum().sqrt().clamp(min=1e-6)


class _Neighbours:
    """Windows of differences between neighbouring elements."""

    def __init__(self, operator: str, own: torch.Tensor) -> None:
        device = own.device
        self._stretches = _Stretches(own.shape[1], _NEIGHBOURS.get(device.type, _NEIGHBOURS["cpu"]))
        self._range, self._step = _scale(operator, own.reshape(-1))
        values = self._stretches.of(own[0]).to(torch.float64)
        self._window = self._length_of_window(values) if self._step > 0.0 else 0
        self._factors = [_odd() for _ in range(LONGEST_WINDOW.bit_length())]
        self._classes = _Classes()
        self._memory = _Memory(CLASSES, torch.int32, device)
        self._again = [0, 0]
        """Repeated windows in all calls so far: the candidate's, torch's."""

    def misfit(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        if not self._window:
            return None
        rows = [
            self._classes.least(self._windows(self._stretches.of(values).to(torch.float64))) for values in (got, own)
        ]
        earlier = self._memory.rows
        again = torch.stack([_found(row, earlier).any(dim=0).sum() for row in rows]).tolist()
        self._memory.add(rows[0])
        self._again = [total + number for total, number in zip(self._again, again, strict=True)]
        more, more_in_all = again[0] - again[1], self._again[0] - self._again[1]
        allowed = CLASSES / 4 + DEVIATIONS * math.sqrt(self._window * sum(self._again))
        if more <= CLASSES / 2 and more_in_all <= allowed:
            return None
        return (
            f"neighbouring values are those of earlier calls: of {CLASSES} groups that are looked at {again[0]} stood "
            f"in one, {again[1]} of torch's own ({self._again[0]} and {self._again[1]} in all calls)"
        )

    def _length_of_window(self, values: torch.Tensor) -> int:
        """A power of two; 0 where a window would be too long for the result, or tell too little."""
        steps = self._steps(values)
        if steps.numel() < 2:
            return 0
        counts = torch.unique_consecutive(in_order(steps), return_counts=True)[1].to(torch.float64)
        same = float((counts * (counts - 1)).sum()) / (steps.numel() * (steps.numel() - 1))
        bits = min(_ELEMENT_BITS, -math.log2(same)) if same > 0.0 else _ELEMENT_BITS
        if bits * LONGEST_WINDOW < WINDOW_BITS:
            return 0
        length = 1 << math.ceil(math.log2(WINDOW_BITS / bits))
        return length if 4 * length <= values.numel() else 0

    def _steps(self, values: torch.Tensor) -> torch.Tensor:
        steps = values.diff()
        if self._range:
            steps -= (steps / self._range).round_().mul_(self._range)
        return (
            steps.div_(self._step).nan_to_num_(nan=0.0).clamp_(-_LARGEST_STEP, _LARGEST_STEP).round_().to(torch.int64)
        )

    def _windows(self, values: torch.Tensor) -> torch.Tensor:
        """A hash of each window; the same for one that is turned around, and for one with the opposite sign."""
        ahead = back = self._steps(values)
        length, factors = 1, iter(self._factors)
        while length < self._window:
            factor = next(factors)
            ahead = torch.add(ahead[:-length], ahead[length:], alpha=factor)
            back = torch.add(back[length:], back[:-length], alpha=factor)
            length *= 2
        return ahead * back


def _scale(operator: str, values: torch.Tensor) -> tuple[float, float]:
    """The range that values are moved around in, 0 where they are not; and the step that differences are rounded to."""
    if values.numel() < 2 or not bool(torch.isfinite(values).all()):
        return 0.0, 0.0
    whole = float(values.amax()) - float(values.amin())
    if operators.traits(operator).draws_evenly:
        whole *= (values.numel() + 1) / (values.numel() - 1)  # how far the ends lie beyond the values, on average
        return whole, whole / _STEPS_PER_RANGE
    ordered = in_order(values[:: max(1, values.numel() // _VALUES)].to(torch.float64))
    quartiles = float(ordered[3 * (len(ordered) - 1) // 4] - ordered[(len(ordered) - 1) // 4])
    return 0.0, (quartiles or whole) / _STEPS_PER_QUARTILES


class _Values:
    """Single values, in whatever order."""

    def __init__(self, own: torch.Tensor) -> None:
        self._stretches = _Stretches(own.shape[1], _VALUES)
        self._classes = _Classes()
        self._memory = _Memory(CLASSES, torch.int32, own.device)
        held = -math.expm1(-min(own.shape[1], _VALUES) / LEAST_GRID)
        self._by_chance = max(CLASSES * held / (2.0 - held), self._shared_by(own))
        self._comparisons = 0

    def _shared_by(self, own: torch.Tensor) -> float:
        """Upper estimate of the values that two of torch's own draws share on average."""
        rows = torch.stack([self._row(values) for values in own])
        shared = sum(int(_found(row, rows[:place]).sum()) for place, row in enumerate(rows))
        pairs = len(rows) * (len(rows) - 1) / 2
        return (shared + 4.0 * math.sqrt(shared) + 10.0) / pairs if pairs else math.inf

    def _row(self, values: torch.Tensor) -> torch.Tensor:
        return self._classes.least(_bits(self._stretches.of(values)))

    def misfit(self, own: torch.Tensor, got: torch.Tensor, together: float) -> str | None:
        """Against each earlier call; twice what torch's own draw shares with one is allowed beyond chance."""
        usual = 6.0 * together + self._by_chance + DEVIATIONS * math.sqrt(self._by_chance * together)
        if usual >= CLASSES:
            return None
        rows = [self._row(values) for values in (got, own)]
        earlier = self._memory.rows
        most, torchs = 0, 0
        if len(earlier):
            most, torchs = torch.stack([_found(row, earlier).sum(dim=1).amax() for row in rows]).tolist()
        self._memory.add(rows[0])
        self._comparisons += len(earlier)
        allowed = usual + 2.0 * torchs
        odds = unlikelihood((most - 2.0 * torchs) / together, self._by_chance / together)
        if most <= allowed or odds <= EXPONENT + math.log(self._comparisons):
            return None
        return (
            f"values are those of an earlier call: of {CLASSES} that are looked at {most} occurred in one, bound "
            f"{allowed:.3g}"
        )


class _Classes:
    """Assigns numbers to secret classes and keeps the least of each class, which does not depend on their order."""

    def __init__(self) -> None:
        self._factors = _odd(), _odd()

    def least(self, numbers: torch.Tensor) -> torch.Tensor:
        """``(CLASSES,)``: the least mixed number of each class, its last 32 bits."""
        mixed = numbers * self._factors[0]
        mixed = (mixed ^ (mixed >> 32)).mul_(self._factors[1])
        mixed ^= mixed >> 29
        classes = (mixed >> 20) & (CLASSES - 1)
        empty = torch.full((CLASSES,), _LARGEST, dtype=torch.int64, device=numbers.device)
        return empty.scatter_reduce_(0, classes, mixed, "amin").to(torch.int32)


def _found(row: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    """Which classes of a row have the same number in earlier ones."""
    return earlier == row.masked_fill(row == _EMPTY, _EMPTY - 1)


class _Stretches:
    """Stretches at secret places all over a result; a small result is taken as a whole."""

    def __init__(self, elements: int, most: int) -> None:
        length, part = most // _STRETCHES, elements // _STRETCHES
        begins = [part * k + secrets.randbelow(part - length + 1) for k in range(_STRETCHES)] if part > length else []
        self._slices = [slice(begin, begin + length) for begin in begins]

    def of(self, values: torch.Tensor) -> torch.Tensor:
        return torch.cat([values[each] for each in self._slices]) if self._slices else values


def _odd() -> int:
    """A secret factor: whatever is multiplied by it, modulo 2**64, stays different."""
    return secrets.randbits(62) | 1


def _bits(values: torch.Tensor) -> torch.Tensor:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.contiguous().view(integers).to(torch.int64)
