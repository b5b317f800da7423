"""Check of random results: values occur more than once in a row (last dimension) as often as in torch's draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchstone.judging.stochastic.examined_draw import LONG_STRETCH, ROWS_LEARNT_FROM, ExaminedDraw
from torchstone.judging.stochastic.rank_statistics import in_order
from torchstone.judging.stochastic.secret_places import secret_places

COUNT_EXPONENT = 25.0
"""A count raises a false alarm with a probability of less than exp(-COUNT_EXPONENT)."""
LEAST_GRID = 1 << 20
"""Least number of different values that a generator of continuous numbers must have."""
_MOST_ELEMENTS, _MOST_ELEMENTS_IN_FULL = 1 << 14, 1 << 16
"""Most elements among which duplicates are counted, and the same in a call that is judged in full."""


class DuplicatesInRows:
    """Counts values that occur more than once within a row, in each call and over all calls."""

    def __init__(self, each_once: bool) -> None:
        self._each_once = each_once
        self._exponent_factor = 1.0
        """Factor on the exponent of the test; 1 as long as torch's own draws had no duplicates."""
        self._counts: dict[int, list[float]] = {}
        """Duplicates over all calls, by the number of torch's draws in a call.

        Three counts: the candidate's, torch's, and those that a generator of LEAST_GRID values would have by chance."""

    def mismatch_text(self, draw: ExaminedDraw) -> str | None:
        length = draw.row_length
        if length < 2:
            return None
        rows, places = _secret_rows(
            draw.elements // length, length, _MOST_ELEMENTS_IN_FULL if draw.in_full else _MOST_ELEMENTS
        )
        own = draw.own if draw.elements <= LONG_STRETCH else draw.own[:ROWS_LEARNT_FROM]
        counts = [_duplicates(values.reshape(-1, length), rows, places) for values in (draw.got, *own)]
        got, *owns = torch.stack(counts).tolist()
        if self._each_once and got:
            return f"{got:g} duplicate values within rows; each value may occur only once in a row"
        self._measure_spread(owns)
        chance = len(rows) * len(places) * (len(places) - 1) / 2 / LEAST_GRID if draw.epsilon else 0.0
        here = [got, sum(owns), chance]
        before = self._counts.get(len(owns), [0.0, 0.0, 0.0])
        in_all = self._counts[len(owns)] = [one + other for one, other in zip(before, here, strict=True)]
        for mine, torchs, coarse in (here, in_all):
            if (
                _unlikelihood(mine, torchs, len(owns), coarse, bool(draw.epsilon))
                > COUNT_EXPONENT * self._exponent_factor
            ):
                return (
                    f"{mine:g} duplicate values within rows; {torchs:g} in torch's draws, which have {len(owns)} times "
                    "as many values"
                )
        return None

    def _measure_spread(self, owns: Sequence[float]) -> None:
        mean = sum(owns) / len(owns)
        if mean > 0.0:
            spread = sum((number - mean) ** 2 for number in owns) / (len(owns) - 1)
            few = len(owns) == 2  # two draws say little about their spread
            self._exponent_factor = max(self._exponent_factor, 1.5, 0.0 if few else 1.5 * spread / max(1.0, mean))


def _secret_rows(rows: int, length: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Secret indices of rows, and of positions in them, that are examined: about ``most`` elements together."""
    places = secret_places(length, most)
    return secret_places(rows, max(1, most // len(places))), places


def _duplicates(values: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """How many different values occur more than once in their row. Each is counted once."""
    if len(rows) < values.shape[0]:
        values = values[rows.to(values.device)]
    if len(places) < values.shape[1]:
        values = values[:, places.to(values.device)]
    ordered = in_order(values)
    same = ordered[:, 1:] == ordered[:, :-1]
    return same.sum() - (same[:, 1:] & same[:, :-1]).sum()


def _unlikelihood(mine: float, torchs: float, draws: int, coarse: float, is_float: bool) -> float:
    """-log of Chernoff's bound on the probability of ``mine`` duplicates, given ``torchs`` in ``draws`` torch draws."""
    ratio = 2.0 if is_float else 1.0
    most, least = ratio / (ratio + draws), 1.0 / (1.0 + ratio * draws)
    if mine * draws < torchs:
        return _divergence(mine, mine + torchs, least) if mine < least * (mine + torchs) else 0.0
    mine = max(0.0, mine - coarse - 8.0 * math.sqrt(coarse))
    return _divergence(mine, mine + torchs, most) if mine > most * (mine + torchs) else 0.0


def _divergence(part: float, total: float, share: float) -> float:
    """``total`` times the Kullback-Leibler divergence of the share ``part / total`` from ``share``."""
    rest = total - part
    return (part * math.log(part / (total * share)) if part else 0.0) + (
        rest * math.log(rest / (total * (1.0 - share))) if rest else 0.0
    )
