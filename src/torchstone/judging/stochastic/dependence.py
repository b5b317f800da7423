"""Checks what the elements of a random result depend on: their inputs, and one another.

Values may be distributed as torch's are, and still not be what the operator draws. They may belong to other elements,
come from one random number that is used for many elements, or be indices that occur twice where each may occur once.
Five checks compare a result with torch's own draws of the same call, at positions that are drawn in secret for each
call. Of `pairs` and `echoes` only one, chosen in secret, is run in a call that is not judged in full:

inputs       how closely elements agree with a second draw of torch's from the same inputs, by rank and by equality of
             values that are rare elsewhere
order        how ranks rise or fall along the rows; finds sorted draws
pairs        the joint histogram of two elements, over a grid of ranks, at small, power-of-two and random distances
echoes       autocorrelation of the result at any distance, also plus a constant (modulo the range) or mirrored;
             computed with ranks as angles
coincidences how many values occur more than once in a row

Probability of a false alarm: given the inputs, an honest draw and torch's own are exchangeable, element by element.
So the first four differ by sums of terms of random sign, whose tails are known. For a sum the bound is Hoeffding's.
For a sum of squares over a grid it is that of Hanson and Wright: the matrix is a Laplacian divided by its degrees,
with no eigenvalue beyond 2, and pairs are disjoint. Coincidences are counts: Chernoff, with the spread of torch's
own. Together this is less than 1e-9 for a call, as computed.

Elements that depend on one another widen all of these. Whenever a call is judged in full, the widening is measured by
comparing torch's own draws with each other, and allowed. Small results and rare differences show only over many calls,
so sums are also kept over the calls of a trial (the judging of one kernel on one case).

Honest kernels may round differently, and may have generators with more or fewer values than torch's. So coincidences
of floating-point values may be half or twice as many, or as many as a generator of 2**20 values has.
"""

from __future__ import annotations

import secrets

import torch

from torchstone.judging.stochastic.autocorrelation import Autocorrelation
from torchstone.judging.stochastic.distant_pairs import Pairs
from torchstone.judging.stochastic.duplicates_in_rows import DuplicatesInRows
from torchstone.judging.stochastic.examined_draw import ExaminedDraw
from torchstone.judging.stochastic.input_agreement import InputAgreement
from torchstone.judging.stochastic.order_along_rows import OrderAlongRows
from torchstone.judging.stochastic.results_as_numbers import real_rows


class Dependence:
    """Runs the five checks on one result of one case, call after call."""

    def __init__(self, *, each_once: bool = False) -> None:
        """``each_once``: the operator promises that no value occurs twice in a row."""
        self._inputs = InputAgreement()
        self._order = OrderAlongRows()
        self._pairs = Pairs()
        self._echoes = Autocorrelation()
        self._coincidences = DuplicatesInRows(each_once)

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        """Return the first difference that a check finds between the result and torch's draws; else None.

        ``own``: torch's draws for the call, ``(draws, *shape)``: two, or many if the call is judged in full, as the
        first one must be.
        """
        rows, result = real_rows(own), real_rows(got.unsqueeze(0))[0]
        if not result.numel() or rows.shape[1] != result.numel() or len(rows) < 2:
            return None
        is_float = own.dtype.is_floating_point or own.dtype.is_complex
        row_length = 0 if own.dtype.is_complex or own.dim() < 2 else own.shape[-1]
        draw = ExaminedDraw(rows, result, row_length, torch.finfo(own.dtype).eps if is_float else 0.0)
        slow = (self._pairs, self._echoes)
        parts = (self._inputs, self._order, self._coincidences, *(slow if draw.in_full else (secrets.choice(slow),)))
        return next((text for part in parts if (text := part.mismatch_text(draw)) is not None), None)
