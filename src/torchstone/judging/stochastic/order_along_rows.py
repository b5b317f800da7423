"""Check of random results: values rise or fall along their rows as torch's draws do, so that sorted draws are found."""

from __future__ import annotations

import math
import secrets

import torch

from torchstone.judging.stochastic.examined_draw import DEVIATIONS, LOOKED_AT, MARGIN, ExaminedDraw


class OrderAlongRows:
    """Compares how ranks rise along the rows with a draw of torch's, in each call and over all calls."""

    def __init__(self) -> None:
        self._width = 1.0
        self._sum, self._square = 0.0, 0.0

    def mismatch_text(self, draw: ExaminedDraw) -> str | None:
        if draw.row_length < 2:
            return None
        part = _whole_rows(draw)
        along = torch.linspace(-1.0, 1.0, draw.row_length, dtype=torch.float64, device=draw.got.device)
        along = along.repeat(-(-(part.stop - part.start) // draw.row_length))[: part.stop - part.start]
        if draw.in_full:
            own = draw.reference_rows()[:, part]
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


def _whole_rows(draw: ExaminedDraw) -> slice:
    """A slice of consecutive rows that starts at a secret row, or the beginning of a single long row."""
    rows = max(1, LOOKED_AT // draw.row_length)
    first = secrets.randbelow(max(1, draw.elements // draw.row_length - rows + 1)) * draw.row_length
    return slice(first, min(first + rows * draw.row_length, draw.elements))


def _rising(
    draw: ExaminedDraw, one: torch.Tensor, other: torch.Tensor, along: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """By how much more ``other`` rises along rows than ``one``, a sum; and the sum of the squares of its terms."""
    terms = (draw.ranks(other) - draw.ranks(one)) * along
    return terms.sum(dim=-1), terms.square().sum(dim=-1)
