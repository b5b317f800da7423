"""Check of random results: a result resembles a torch draw from the same inputs as much as two torch draws do.

At secret positions, ranks are compared, and equality of values that are rare among all elements. A result that ignores
its inputs, or has the values of other positions, resembles torch's draw less.
"""

from __future__ import annotations

import math

import torch

from torchstone.judging.stochastic.examined_draw import DEVIATIONS, MARGIN, ExaminedDraw

_MOST_RARE_SHARE = 0.05
"""A value counts as rare if at most this share of all elements has it. Rare values identify their input."""
_ROUNDINGS = 4.0
"""Roundings of the dtype by which two values may differ and still count as equal."""
_EQUALITY_SLACK = 0.25
"""Share of torch's equal values that a kernel with other roundings may add or remove."""


class InputAgreement:
    """Compares how well the result agrees with a draw of torch's, and how well another draw of torch's does."""

    def __init__(self) -> None:
        self._width = [1.0, 1.0]
        self._sums = [0.0, 0.0]
        self._squares = [0.0, 0.0]
        self._levels = [0.0, 0.0]

    def mismatch_text(self, draw: ExaminedDraw) -> str | None:
        if draw.in_full:
            self._measure_width(draw)
        own = draw.own_here
        found = _agreement(draw, own[:1], draw.got_here.unsqueeze(0), own[1:2])[:, :, 0].tolist()
        names = ("correlation of ranks", "number of equal values")
        for which, (name, (total, square, level)) in enumerate(zip(names, found, strict=True)):
            self._sums[which] += total
            self._squares[which] += square
            self._levels[which] += level
            seen = ((total, square, level), (self._sums[which], self._squares[which], self._levels[which]))
            for place, (more, squares_sum, torchs) in enumerate(seen):
                allowed = (
                    DEVIATIONS * self._width[which] * math.sqrt(squares_sum) + _EQUALITY_SLACK * abs(torchs) * which
                )
                if abs(more) > allowed:
                    return (
                        f"the {name} with a torch draw from the same inputs is {torchs + more:.4g}"
                        f"{' over all calls' * place}; "
                        f"that of another torch draw is {torchs:.4g}, allowed difference {allowed:.3g}"
                    )
        return None

    def _measure_width(self, draw: ExaminedDraw) -> None:
        own = draw.own_here
        total, square, _ = _agreement(draw, own[:-2], own[1:-1], own[2:]).unbind(1)
        wide = (total.square() / square.clamp(min=1e-9)).mean(dim=1).sqrt().tolist()
        self._width = [max(one, MARGIN * other) for one, other in zip(self._width, wide, strict=True)]


def _agreement(draw: ExaminedDraw, one: torch.Tensor, other: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    """``(2, 3, rows)``: three numbers each for agreement of ranks and for equality of rare values.

    The three are: how much more ``other`` agrees with ``third`` than ``one`` does, a sum; the sum of squares of its
    terms; and how much ``one`` agrees with ``third``.
    """
    less, upto = draw.below(third)
    first, second, last = draw.ranks(one) - 0.5, draw.ranks(other) - 0.5, (less + upto) / 2 - 0.5
    rare = upto - less < _MOST_RARE_SHARE
    near = [(_nearly_equal(values, third, draw.epsilon) & rare).to(torch.float64) for values in (one, other)]
    terms = torch.stack([(second - first) * last, near[1] - near[0]])
    levels = torch.stack([first * last, near[0]])
    return torch.stack([terms.sum(dim=2), terms.square().sum(dim=2), levels.sum(dim=2)], dim=1)


def _nearly_equal(values: torch.Tensor, others: torch.Tensor, epsilon: float) -> torch.Tensor:
    if not epsilon:
        return values == others
    tolerance = _ROUNDINGS * epsilon * torch.minimum(values.abs(), others.abs())
    return ((values - others).abs() <= tolerance) | (values == others)
