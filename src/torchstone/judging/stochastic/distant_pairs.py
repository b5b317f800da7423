"""Check of random results: two elements at some distance have the same joint distribution as in torch's draws."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import torch

from torchstone.judging.stochastic.examined_draw import MARGIN, ROWS_LEARNT_FROM, ExaminedDraw
from torchstone.judging.stochastic.secret_places import secret_places

PAIRS, MORE_PAIRS = 1 << 11, 1 << 12
"""Most pairs for each distance, and the same in a call that is judged in full."""
FEWEST_PAIRS = 8
"""Least number of pairs of a distance; with fewer the distance is not examined."""
NEAREST = 16
"""Distances up to this count as small: every call examines one of them."""
EXPONENT = 30.0
"""A grid raises a false alarm with a probability of less than exp(-EXPONENT)."""
_MOST_GRID_STEPS = 16
"""Most cells of the grid along each axis."""
_MOST_SUMMED_PAIRS = 1 << 17
"""Most pairs whose grids are added up before the sums start again from 0. Otherwise tiny differences of honest
generators would add up."""


class Pairs:
    """Compares joint histograms of pairs of elements, in each call and added up over calls."""

    def __init__(self) -> None:
        self._widening = 1.0
        self._sum, self._cells, self._summed_pairs = 0.0, 0.0, 0

    def mismatch_text(self, draw: ExaminedDraw) -> str | None:
        distances = _distances(draw.elements, draw.in_full)
        chosen = [(distance, _disjoint_pairs(draw.elements, distance, draw.in_full)) for distance in distances]
        chosen = [(distance, places) for distance, places in chosen if len(places) >= FEWEST_PAIRS]
        if not chosen:
            return None
        rows = [draw.own[0], draw.got]
        found = [_grid_statistics(draw, rows, places, distance) for distance, places in chosen]
        learnt = (
            [_grid_statistics(draw, draw.reference_rows(), *pair[::-1]) for pair in chosen[:6]] if draw.in_full else []
        )
        numbers: list[list[list[float]]] = torch.stack([*found, *learnt]).tolist()
        for square, cells in (pair for row in numbers[len(found) :] for pair in row):
            self._widening = max(self._widening, MARGIN * square / _largest_usual_square(cells, 6.0))
        for (distance, places), row in zip(chosen, numbers, strict=False):
            text = self._text(row[0][0], row[0][1], f"{distance} places apart, {len(places)} pairs")
            if text is not None:
                return text
        return self._over_calls(numbers[0][0][0], numbers[0][0][1], len(chosen[0][1]))

    def _over_calls(self, square: float, cells: float, pairs: int) -> str | None:
        if self._summed_pairs > _MOST_SUMMED_PAIRS:
            self._sum, self._cells, self._summed_pairs = 0.0, 0.0, 0
        self._sum, self._cells, self._summed_pairs = self._sum + square, self._cells + cells, self._summed_pairs + pairs
        return self._text(
            self._sum, self._cells, f"up to {NEAREST} places apart, {self._summed_pairs} pairs of several calls"
        )

    def _text(self, square: float, cells: float, where: str) -> str | None:
        allowed = self._widening * _largest_usual_square(cells, EXPONENT)
        if square <= allowed:
            return None
        return (
            f"pairs of elements have another joint distribution than torch's: {where}, "
            f"chi-square of the joint histogram {square:.4g}, bound {allowed:.4g}"
        )


def _distances(elements: int, in_full: bool) -> list[int]:
    """Distances to examine. The first is a small one; others are powers of two, half the result, and random ones."""
    most = elements // 2
    if most < 1:
        return []
    powers = [1 << place for place in range(most.bit_length())]
    small = range(1, min(NEAREST, most) + 1)
    if in_full:
        some = [secrets.choice(powers) for _ in range(3)] + [1 + secrets.randbelow(most) for _ in range(3)]
        return list(dict.fromkeys([secrets.choice(small), 1, *_random_choices(small, 3), most, *some]))
    return [secrets.choice(small), secrets.choice([*powers, most]), 1 + secrets.randbelow(most)]


def _random_choices(numbers: Sequence[int], count: int) -> list[int]:
    return [secrets.choice(numbers) for _ in range(count)]


def _disjoint_pairs(elements: int, distance: int, in_full: bool) -> torch.Tensor:
    """Secret positions of the first elements of pairs at this distance. No element is in two pairs."""
    places = secret_places(elements - distance, 2 * (MORE_PAIRS if in_full else PAIRS))
    shift = secrets.randbelow(2 * distance) if 4 * distance <= elements else 0
    return places[((places + shift) // distance) % 2 == 0]


def _grid_statistics(
    draw: ExaminedDraw, rows: Sequence[torch.Tensor] | torch.Tensor, places: torch.Tensor, distance: int
) -> torch.Tensor:
    """Compare rows 0 and 1, 2 and 3, and so on: sum of squares over a grid, and number of cells that are not empty.

    The result is padded to ``(ROWS_LEARNT_FROM / 2, 2)``.
    """
    there = torch.stack([places, places + distance]).to(draw.got.device)
    steps = max(2, min(_MOST_GRID_STEPS, math.isqrt(len(places) // 4)))
    ranks = draw.ranks(torch.stack([row[there] for row in rows]))
    first, second = (ranks * steps).to(torch.int64).clamp_(max=steps - 1).unbind(1)
    counts = torch.zeros((len(rows), steps * steps), dtype=torch.float64, device=draw.got.device)
    cells = first * steps + second
    counts.scatter_add_(1, cells, torch.ones_like(cells, dtype=torch.float64))
    one, other = counts[0::2], counts[1::2]
    both = one + other
    square = ((one - other).square() / both.clamp(min=1.0)).sum(dim=1)
    not_empty = (both > 0).to(torch.float64).sum(dim=1)
    return torch.nn.functional.pad(
        torch.stack([square, not_empty], dim=1), (0, 0, 0, ROWS_LEARNT_FROM // 2 - len(square))
    )


def _largest_usual_square(cells: float, exponent: float) -> float:
    """The sum of squares that is exceeded with a probability of less than exp(-exponent) (Hanson and Wright)."""
    return cells + 2.0 * math.sqrt(2.0 * cells * exponent) + 4.0 * exponent
