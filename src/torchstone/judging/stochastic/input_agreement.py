"""Check of random results: a result resembles a torch draw from the same inputs as much as two torch draws do.

In each of some secret places the ranks are compared, and whether the values are equal where such values are rare. A
result that ignores its inputs, or has the values of other places, resembles torch's draw less.
"""

from __future__ import annotations

import math

import torch

from torchstone.judging.stochastic.examined_draw import DEVIATIONS, MARGIN, ExaminedDraw

_RARE = 0.05
"""Largest share of all elements that may have a value which counts as rare: it tells which input it comes from."""
_ROUNDINGS = 4.0
_SLACK = 0.25
"""Share of torch's equal values that other roundings may add or remove."""


class InputAgreement:
    """Compares how closely the result, and a first draw of torch's, agree with a second draw of torch's."""

    def __init__(self) -> None:
        self._width = [1.0, 1.0]
        self._sums = [0.0, 0.0]
        self._squares = [0.0, 0.0]
        self._levels = [0.0, 0.0]

    def misfit(self, draw: ExaminedDraw) -> str | None:
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

    def _learn(self, draw: ExaminedDraw) -> None:
        own = draw.own_here
        total, square, _ = _agreement(draw, own[:-2], own[1:-1], own[2:]).unbind(1)
        wide = (total.square() / square.clamp(min=1e-9)).mean(dim=1).sqrt().tolist()
        self._width = [max(one, MARGIN * other) for one, other in zip(self._width, wide, strict=True)]


def _agreement(draw: ExaminedDraw, one: torch.Tensor, other: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    """``(2, 3, rows)``, by rank and by equality of rare values.

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
