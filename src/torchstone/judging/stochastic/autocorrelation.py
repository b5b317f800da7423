"""Check of random results: a result resembles itself, shifted by any distance, as much as a torch draw does.

Ranks are used as angles. So the check also finds an element that is another one plus a constant (modulo the range), or
its mirror image (rank r becomes 1 - r).
"""

from __future__ import annotations

import math
import secrets

import torch

from torchstone.judging.stochastic.examined_draw import DEVIATIONS, LONG_STRETCH, MARGIN, ExaminedDraw

_MOST_ELEMENTS = 1 << 13
"""Most elements that are examined in a call that is not judged in full."""


class Autocorrelation:
    """Compares a slice of the result with itself, shifted by every possible distance."""

    _USUAL_DEVIATIONS = 7.0
    """Deviations that the largest difference between two draws of independent elements usually has."""

    def __init__(self) -> None:
        self._widening = 1.0

    def mismatch_text(self, draw: ExaminedDraw) -> str | None:
        length = min(draw.elements, LONG_STRETCH if draw.in_full else _MOST_ELEMENTS)
        if length < DEVIATIONS * DEVIATIONS:
            return None
        begin = secrets.randbelow(draw.elements - length + 1)
        part = slice(begin, begin + length)
        pairs = [(draw.own[0], draw.got)]
        if draw.in_full:
            own = draw.reference_rows()
            pairs += list(zip(own[0::2], own[1::2], strict=True))
        found = torch.stack([_largest_difference(draw, one[part], other[part]) for one, other in pairs]).tolist()
        for largest, _ in found[1:]:
            self._widening = max(self._widening, MARGIN * largest / self._USUAL_DEVIATIONS)
        largest, distance = found[0]
        allowed = self._widening * DEVIATIONS * math.sqrt(2.0)
        if largest <= allowed:
            return None
        return (
            f"the autocorrelation of elements {int(distance)} places apart differs from torch's by "
            f"{largest:.3g} deviations, bound {allowed:.3g}, over {length} elements"
        )


def _largest_difference(draw: ExaminedDraw, own: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Compare the autocorrelations of two draws: the largest difference, in deviations, and the shift where it is."""
    angles = draw.ranks(torch.stack([own, got])).to(torch.float32) * (2.0 * math.pi)
    rotations = torch.polar(torch.ones_like(angles), angles)
    rows = torch.cat([rotations, (rotations[1] * rotations[0].conj()).unsqueeze(0)])
    length = rows.shape[1]
    waves = torch.fft.fft(rows, n=2 * length)
    products = torch.stack([waves * waves.conj(), waves * waves.flip(1).roll(1, 1)])
    correlations = torch.fft.ifft(products)[:, :, 1:length]
    differences = correlations[:, 1] - correlations[:, 0]
    terms = torch.arange(length - 1, 0, -1, device=own.device)
    squares = (2.0 * terms - 2.0 * correlations[:, 2].real).clamp(min=DEVIATIONS * DEVIATIONS)
    deviations = torch.maximum(differences.real.abs(), differences.imag.abs()) / squares.sqrt()
    largest, place = deviations.amax(dim=0).max(dim=0)
    return torch.stack([largest.to(torch.float64), (place + 1).to(torch.float64)])
