"""Check of random results: a result resembles itself, shifted by any distance, as much as a torch draw does.

Ranks are taken as angles. So it is also found that an element is another one plus a constant (modulo the range), or
its mirror image (rank r becomes 1 - r).
"""

from __future__ import annotations

import math
import secrets

import torch

from torchstone.judging.stochastic.examined_draw import DEVIATIONS, LONG_STRETCH, MARGIN, ExaminedDraw

_STRETCH = 1 << 13
"""Elements of a stretch in a call that is not judged in full."""


class Autocorrelation:
    """Compares a stretch of the result with itself, shifted by every possible distance."""

    _USUAL = 7.0

    def __init__(self) -> None:
        self._wide = 1.0

    def misfit(self, draw: ExaminedDraw) -> str | None:
        length = min(draw.elements, LONG_STRETCH if draw.in_full else _STRETCH)
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


def _echo(draw: ExaminedDraw, own: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """The largest difference of two draws in their likeness to themselves, in deviations, and at which distance."""
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
