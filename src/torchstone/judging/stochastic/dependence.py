"""What the elements of a random result depend on: their inputs, and one another.

Values may be distributed as torch's are, and still not be what the operator draws. They may be values of other
places, one random number stretched over many elements, or indices that come twice where each may come once. Five
things are compared with torch's own draws of the same call, in places that are drawn in secret for each call. The
third and the fourth alternate in secret, unless a call is judged in full:

inputs       how closely elements agree with a second draw of torch's at their place, by rank and by coincidence of
             values that are rare elsewhere
order        how ranks rise or fall along the rows: draws that were sorted are no longer in the order of drawing
pairs        the joint histogram of elements some places apart, over a grid of ranks: few places, powers of two, any
echoes       the angles of ranks, multiplied with those any number of places on: the result moved along itself, plus a
             number (modulo the range) or mirrored
coincidences how many values stand more than once in a row

Probability of a false alarm: given the inputs, an honest draw and torch's own are exchangeable, element by element.
So the first four differ by sums of terms of random sign, whose tails are known. For a sum the bound is Hoeffding's.
For a sum of squares over a grid it is that of Hanson and Wright: the matrix is a Laplacian divided by its degrees,
with no eigenvalue beyond 2, and pairs are disjoint. Coincidences are counts: Chernoff, with the spread of torch's
own. Together this is less than 1e-9 for a call, as computed.

Elements that depend on one another widen all of these. Whenever a call is judged in full, the widening is measured on
torch's own draws against each other, and allowed. Small results and rare differences show over many calls: sums are
also kept over the calls of a trial.

Honest kernels may round differently, and may have generators with more or fewer values than torch's. So coincidences
of floating-point values may be half or twice as many, and as many as one of 2**20 values has.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import torch

from torchstone.judging.stochastic.ranking import Ranking, in_order
from torchstone.judging.stochastic.real_numbers import real_rows

DEVIATIONS = 9.0
LOOKED_AT = 1 << 12
"""Elements that are compared with their inputs, and whose values ranks are taken among."""
PAIRS, MORE_PAIRS = 1 << 11, 1 << 12
"""For each distance, at most; more where a call is judged in full."""
FEWEST_PAIRS = 8
NEAREST = 16
"""Distances up to this are tried most."""
EXPONENT = 30.0
"""A grid stands out with a probability of less than exp(-EXPONENT)."""
COUNT_EXPONENT = 25.0
"""The same of coincidences."""
LEAST_GRID = 1 << 20
"""Different values that a generator of continuous numbers must have."""
MARGIN = 1.25
"""On whatever is measured of torch's own draws."""
_ROWS_LEARNT_FROM = 8
_RARE = 0.05
"""A value that fewer of all elements have tells where it comes from."""
_ROUNDINGS = 4.0
_SLACK = 0.25
"""Share of torch's coincidences that other roundings may make or unmake."""
_FINEST = 16
"""Steps of the grid, each way."""
_KEPT_PAIRS = 1 << 17
"""Pairs that grids are added up over before the sums start again, so that tiny differences of honest generators do not
add up."""
_STRETCH, _LONG_STRETCH = 1 << 13, 1 << 15
_COUNTED, _COUNTED_IN_FULL = 1 << 14, 1 << 16
"""Elements among which coincidences are counted."""


class Dependence:
    """One result of one case, call after call."""

    def __init__(self, *, each_once: bool = False) -> None:
        """``each_once``: the operator promises that no value comes twice in a row."""
        self._inputs = _Inputs()
        self._order = _RankOrder()
        self._pairs = _Pairs()
        self._echoes = _Echoes()
        self._coincidences = _Coincidences(each_once)

    def misfit(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        """What a result depends on otherwise than torch's. ``own``: ``(draws, *shape)``, two, or many: to learn from.

        The first call must have many.
        """
        rows, result = real_rows(own), real_rows(got.unsqueeze(0))[0]
        if not result.numel() or rows.shape[1] != result.numel() or len(rows) < 2:
            return None
        is_float = own.dtype.is_floating_point or own.dtype.is_complex
        row_length = 0 if own.dtype.is_complex or own.dim() < 2 else own.shape[-1]
        draw = _Draw(rows, result, row_length, torch.finfo(own.dtype).eps if is_float else 0.0)
        slow = (self._pairs, self._echoes)
        parts = (self._inputs, self._order, self._coincidences, *(slow if draw.in_full else (secrets.choice(slow),)))
        return next((text for part in parts if (text := part.misfit(draw)) is not None), None)


class _Draw:
    """A result, torch's own of the same call, and what is looked at."""

    def __init__(self, own: torch.Tensor, got: torch.Tensor, row_length: int, epsilon: float) -> None:
        self.own = own
        self.got = got
        self.row_length = row_length
        self.epsilon = epsilon
        """Unit of rounding; 0 for integers."""
        self.elements = got.numel()
        self.in_full = len(own) > 2
        places = secret_places(self.elements, LOOKED_AT).to(got.device)
        self.own_here = own[:, places].to(torch.float64)
        self.got_here = got[places].to(torch.float64)
        self._ranking = Ranking(torch.cat([self.own_here[0], self.got_here]))

    def below(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares of the sampled values that are less than each, and no more than it."""
        return self._ranking.below(values)

    def ranks(self, values: torch.Tensor) -> torch.Tensor:
        """From 0 to 1, ties in the middle."""
        return self._ranking.ranks(values.to(torch.float64))

    def learnt_from(self) -> torch.Tensor:
        """Some of torch's draws, an even number."""
        return self.own[: min(_ROWS_LEARNT_FROM, len(self.own) // 2 * 2)]


def secret_places(elements: int, most: int) -> torch.Tensor:
    """Different places all over a result, on the host; all of them if they are few."""
    if elements <= most:
        return torch.arange(elements)
    source = torch.Generator().manual_seed(secrets.randbits(63))
    begins = torch.arange(most + 1) * elements // most
    chance = torch.rand(most, generator=source, dtype=torch.float64)
    return begins[:-1] + (chance * begins.diff()).to(torch.int64)


class _Inputs:
    """Agreement with a second draw of torch's, which had the same inputs."""

    def __init__(self) -> None:
        self._width = [1.0, 1.0]
        self._sums = [0.0, 0.0]
        self._squares = [0.0, 0.0]
        self._levels = [0.0, 0.0]

    def misfit(self, draw: _Draw) -> str | None:
        if draw.in_full:
            self._learn(draw)
        own = draw.own_here
        found = _agreement(draw, own[:1], draw.got_here.unsqueeze(0), own[1:2])[:, :, 0].tolist()
        names = ("ranks of the values follow", "values coincide with")
        for which, (name, (total, square, level)) in enumerate(zip(names, found, strict=True)):
            self._sums[which] += total
            self._squares[which] += square
            self._levels[which] += level
            seen = ((total, square, level), (self._sums[which], self._squares[which], self._levels[which]))
            for place, (more, spread, torchs) in enumerate(seen):
                allowed = DEVIATIONS * self._width[which] * math.sqrt(spread) + _SLACK * abs(torchs) * which
                if abs(more) > allowed:
                    return (
                        f"how closely the {name} what the inputs make of them is {torchs + more:.4g}"
                        f"{' over all calls' * place}; torch's own draw: {torchs:.4g}, bound {allowed:.3g} from there"
                    )
        return None

    def _learn(self, draw: _Draw) -> None:
        own = draw.own_here
        total, square, _ = _agreement(draw, own[:-2], own[1:-1], own[2:]).unbind(1)
        wide = (total.square() / square.clamp(min=1e-9)).mean(dim=1).sqrt().tolist()
        self._width = [max(one, MARGIN * other) for one, other in zip(self._width, wide, strict=True)]


class _RankOrder:
    """Whether values rise or fall along their rows."""

    def __init__(self) -> None:
        self._width = 1.0
        self._sum, self._square = 0.0, 0.0

    def misfit(self, draw: _Draw) -> str | None:
        if draw.row_length < 2:
            return None
        part = _whole_rows(draw)
        along = torch.linspace(-1.0, 1.0, draw.row_length, dtype=torch.float64, device=draw.got.device)
        along = along.repeat(-(-(part.stop - part.start) // draw.row_length))[: part.stop - part.start]
        if draw.in_full:
            own = draw.learnt_from()[:, part]
            totals, squares = _rising(draw, own[0::2], own[1::2], along)
            wide = float((totals.square() / squares.clamp(min=1e-9)).mean().sqrt())
            self._width = max(self._width, MARGIN * wide)
        total, square = (float(each) for each in _rising(draw, draw.own[0, part], draw.got[part], along))
        self._sum, self._square = self._sum + total, self._square + square
        for where, (more, spread) in (("", (total, square)), (" over all calls", (self._sum, self._square))):
            allowed = DEVIATIONS * self._width * math.sqrt(spread)
            if abs(more) > allowed:
                return (
                    f"along rows of {draw.row_length} the ranks of the values {'rise' if more > 0 else 'fall'} by "
                    f"{abs(more):.4g} more than torch's{where}, bound {allowed:.3g}"
                )
        return None


def _whole_rows(draw: _Draw) -> slice:
    """Some rows, one behind the other, or the beginning of one; which, nobody can foresee."""
    rows = max(1, LOOKED_AT // draw.row_length)
    first = secrets.randbelow(max(1, draw.elements // draw.row_length - rows + 1)) * draw.row_length
    return slice(first, min(first + rows * draw.row_length, draw.elements))


def _rising(
    draw: _Draw, one: torch.Tensor, other: torch.Tensor, along: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """By how much more ``other`` rises than ``one``, and the sum of squares of what that is the sum of."""
    terms = (draw.ranks(other) - draw.ranks(one)) * along
    return terms.sum(dim=-1), terms.square().sum(dim=-1)


def _agreement(draw: _Draw, one: torch.Tensor, other: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    """``(2, 3, rows)``, by rank and by coincidence.

    The three are: how much more ``other`` agrees with ``third`` than ``one`` does, the sum of squares of the terms of
    that sum, and how much ``one`` agrees.
    """
    less, upto = draw.below(third)
    first, second, last = draw.ranks(one) - 0.5, draw.ranks(other) - 0.5, (less + upto) / 2 - 0.5
    rare = upto - less < _RARE
    near = [(_near(values, third, draw.epsilon) & rare).to(torch.float64) for values in (one, other)]
    terms = torch.stack([(second - first) * last, near[1] - near[0]])
    levels = torch.stack([first * last, near[0]])
    return torch.stack([terms.sum(dim=2), terms.square().sum(dim=2), levels.sum(dim=2)], dim=1)


def _near(values: torch.Tensor, others: torch.Tensor, epsilon: float) -> torch.Tensor:
    if not epsilon:
        return values == others
    room = _ROUNDINGS * epsilon * torch.minimum(values.abs(), others.abs())
    return ((values - others).abs() <= room) | (values == others)


class _Pairs:
    """Joint histograms."""

    def __init__(self) -> None:
        self._wide = 1.0
        self._sum, self._cells, self._kept = 0.0, 0.0, 0

    def misfit(self, draw: _Draw) -> str | None:
        distances = _distances(draw.elements, draw.in_full)
        chosen = [(distance, _disjoint(draw.elements, distance, draw.in_full)) for distance in distances]
        chosen = [(distance, places) for distance, places in chosen if len(places) >= FEWEST_PAIRS]
        if not chosen:
            return None
        rows = [draw.own[0], draw.got]
        found = [_grid(draw, rows, places, distance) for distance, places in chosen]
        learnt = [_grid(draw, draw.learnt_from(), *pair[::-1]) for pair in chosen[:6]] if draw.in_full else []
        numbers: list[list[list[float]]] = torch.stack([*found, *learnt]).tolist()
        for square, cells in (pair for row in numbers[len(found) :] for pair in row):
            self._wide = max(self._wide, MARGIN * square / _usual_square(cells, 6.0))
        for (distance, places), row in zip(chosen, numbers, strict=False):
            text = self._text(row[0][0], row[0][1], f"{distance} places apart, {len(places)} pairs")
            if text is not None:
                return text
        return self._over_calls(numbers[0][0][0], numbers[0][0][1], len(chosen[0][1]))

    def _over_calls(self, square: float, cells: float, pairs: int) -> str | None:
        if self._kept > _KEPT_PAIRS:
            self._sum, self._cells, self._kept = 0.0, 0.0, 0
        self._sum, self._cells, self._kept = self._sum + square, self._cells + cells, self._kept + pairs
        return self._text(self._sum, self._cells, f"up to {NEAREST} places apart, {self._kept} pairs of several calls")

    def _text(self, square: float, cells: float, where: str) -> str | None:
        allowed = self._wide * _usual_square(cells, EXPONENT)
        if square <= allowed:
            return None
        return (
            f"elements depend on one another otherwise than torch's: {where}, "
            f"chi-square of their joint histogram {square:.4g}, bound {allowed:.4g}"
        )


def _distances(elements: int, in_full: bool) -> list[int]:
    """The first is a small one. Others are powers of two, parts of the whole, and any."""
    most = elements // 2
    if most < 1:
        return []
    powers = [1 << place for place in range(most.bit_length())]
    small = range(1, min(NEAREST, most) + 1)
    if in_full:
        some = [secrets.choice(powers) for _ in range(3)] + [1 + secrets.randbelow(most) for _ in range(3)]
        return list(dict.fromkeys([secrets.choice(small), 1, *_some_of(small, 3), most, *some]))
    return [secrets.choice(small), secrets.choice([*powers, most]), 1 + secrets.randbelow(most)]


def _some_of(numbers: Sequence[int], count: int) -> list[int]:
    return [secrets.choice(numbers) for _ in range(count)]


def _disjoint(elements: int, distance: int, in_full: bool) -> torch.Tensor:
    """Places of which no two, nor those so far behind them, are the same."""
    places = secret_places(elements - distance, 2 * (MORE_PAIRS if in_full else PAIRS))
    shift = secrets.randbelow(2 * distance) if 4 * distance <= elements else 0
    return places[((places + shift) // distance) % 2 == 0]


def _grid(
    draw: _Draw, rows: Sequence[torch.Tensor] | torch.Tensor, places: torch.Tensor, distance: int
) -> torch.Tensor:
    """``(rows / 2, 2)``: of each row and the next, the sum of squares over a grid, and how many cells hold anything."""
    there = torch.stack([places, places + distance]).to(draw.got.device)
    steps = max(2, min(_FINEST, math.isqrt(len(places) // 4)))
    ranks = draw.ranks(torch.stack([row[there] for row in rows]))
    first, second = (ranks * steps).to(torch.int64).clamp_(max=steps - 1).unbind(1)
    counts = torch.zeros((len(rows), steps * steps), dtype=torch.float64, device=draw.got.device)
    cells = first * steps + second
    counts.scatter_add_(1, cells, torch.ones_like(cells, dtype=torch.float64))
    one, other = counts[0::2], counts[1::2]
    both = one + other
    square = ((one - other).square() / both.clamp(min=1.0)).sum(dim=1)
    held = (both > 0).to(torch.float64).sum(dim=1)
    return torch.nn.functional.pad(torch.stack([square, held], dim=1), (0, 0, 0, _ROWS_LEARNT_FROM // 2 - len(square)))


def _usual_square(cells: float, exponent: float) -> float:
    """Hanson and Wright: more than this, with a probability of less than exp(-exponent)."""
    return cells + 2.0 * math.sqrt(2.0 * cells * exponent) + 4.0 * exponent


class _Echoes:
    """A stretch of the result against itself, moved along by any number of places."""

    _USUAL = 7.0

    def __init__(self) -> None:
        self._wide = 1.0

    def misfit(self, draw: _Draw) -> str | None:
        length = min(draw.elements, _LONG_STRETCH if draw.in_full else _STRETCH)
        if length < DEVIATIONS * DEVIATIONS:
            return None
        begin = secrets.randbelow(draw.elements - length + 1)
        stretch = slice(begin, begin + length)
        pairs = [(draw.own[0], draw.got)]
        if draw.in_full:
            own = draw.learnt_from()
            pairs += list(zip(own[0::2], own[1::2], strict=True))
        found = torch.stack([_echo(draw, one[stretch], other[stretch]) for one, other in pairs]).tolist()
        for largest, _ in found[1:]:
            self._wide = max(self._wide, MARGIN * largest / self._USUAL)
        largest, distance = found[0]
        allowed = self._wide * DEVIATIONS * math.sqrt(2.0)
        if largest <= allowed:
            return None
        return (
            f"elements {int(distance)} places apart follow one another otherwise than torch's: "
            f"{largest:.3g} deviations, bound {allowed:.3g}, in a stretch of {length}"
        )


def _echo(draw: _Draw, own: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """How many deviations two draws differ in their likeness to themselves, at most, and how many places on."""
    angles = draw.ranks(torch.stack([own, got])).to(torch.float32) * (2.0 * math.pi)
    turned = torch.polar(torch.ones_like(angles), angles)
    rows = torch.cat([turned, (turned[1] * turned[0].conj()).unsqueeze(0)])
    length = rows.shape[1]
    waves = torch.fft.fft(rows, n=2 * length)
    products = torch.stack([waves * waves.conj(), waves * waves.flip(1).roll(1, 1)])
    moved = torch.fft.ifft(products)[:, :, 1:length]
    differences = moved[:, 1] - moved[:, 0]
    terms = torch.arange(length - 1, 0, -1, device=own.device)
    squares = (2.0 * terms - 2.0 * moved[:, 2].real).clamp(min=DEVIATIONS * DEVIATIONS)
    beyond = torch.maximum(differences.real.abs(), differences.imag.abs()) / squares.sqrt()
    largest, place = beyond.amax(dim=0).max(dim=0)
    return torch.stack([largest.to(torch.float64), (place + 1).to(torch.float64)])


class _Coincidences:
    """Values that stand more than once in a row."""

    def __init__(self, each_once: bool) -> None:
        self._each_once = each_once
        self._wide = 1.0
        """1 as long as torch never had any."""
        self._counts: dict[int, list[float]] = {}
        """Of all calls with so many draws of torch's: mine, torch's, and what a coarse generator may have."""

    def misfit(self, draw: _Draw) -> str | None:
        length = draw.row_length
        if length < 2:
            return None
        rows, places = _secret_rows(draw.elements // length, length, _COUNTED_IN_FULL if draw.in_full else _COUNTED)
        own = draw.own if draw.elements <= _LONG_STRETCH else draw.own[:_ROWS_LEARNT_FROM]
        counts = [_repeated(values.reshape(-1, length), rows, places) for values in (draw.got, *own)]
        got, *owns = torch.stack(counts).tolist()
        if self._each_once and got:
            return f"{got:g} values came more than once in a row, where each may come once"
        self._learn(owns)
        chance = len(rows) * len(places) * (len(places) - 1) / 2 / LEAST_GRID if draw.epsilon else 0.0
        here = [got, sum(owns), chance]
        before = self._counts.get(len(owns), [0.0, 0.0, 0.0])
        in_all = self._counts[len(owns)] = [one + other for one, other in zip(before, here, strict=True)]
        for mine, torchs, coarse in (here, in_all):
            if _unlikelihood(mine, torchs, len(owns), coarse, bool(draw.epsilon)) > COUNT_EXPONENT * self._wide:
                return (
                    f"{mine:g} values came more than once in a row; "
                    f"of torch's own draws {torchs:g} in {len(owns)} times as many"
                )
        return None

    def _learn(self, owns: Sequence[float]) -> None:
        mean = sum(owns) / len(owns)
        if mean > 0.0:
            spread = sum((number - mean) ** 2 for number in owns) / (len(owns) - 1)
            few = len(owns) == 2  # say little about their spread
            self._wide = max(self._wide, 1.5, 0.0 if few else 1.5 * spread / max(1.0, mean))


def _secret_rows(rows: int, length: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows are looked at, and which places in them."""
    places = secret_places(length, most)
    return secret_places(rows, max(1, most // len(places))), places


def _repeated(values: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """How many values stand in a row more than once. However often: what is rare may come in numbers."""
    if len(rows) < values.shape[0]:
        values = values[rows.to(values.device)]
    if len(places) < values.shape[1]:
        values = values[:, places.to(values.device)]
    ordered = in_order(values)
    same = ordered[:, 1:] == ordered[:, :-1]
    return same.sum() - (same[:, 1:] & same[:, :-1]).sum()


def _unlikelihood(mine: float, torchs: float, draws: int, coarse: float, is_float: bool) -> float:
    """Chernoff: so many of mine, and of torch's in ``draws`` as many, have less than exp(-this) of a chance."""
    ratio = 2.0 if is_float else 1.0
    most, least = ratio / (ratio + draws), 1.0 / (1.0 + ratio * draws)
    if mine * draws < torchs:
        return _divergence(mine, mine + torchs, least) if mine < least * (mine + torchs) else 0.0
    mine = max(0.0, mine - coarse - 8.0 * math.sqrt(coarse))
    return _divergence(mine, mine + torchs, most) if mine > most * (mine + torchs) else 0.0


def _divergence(part: float, total: float, share: float) -> float:
    rest = total - part
    return (part * math.log(part / (total * share)) if part else 0.0) + (
        rest * math.log(rest / (total * (1.0 - share))) if rest else 0.0
    )
