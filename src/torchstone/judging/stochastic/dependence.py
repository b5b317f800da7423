"""Checks what the elements of a random result depend on: their inputs, and one another.

Values may be distributed as torch's are, and still not be what the operator draws. They may be values of other
places, one random number stretched over many elements, or indices that come twice where each may come once. Five
things are compared with torch's own draws of the same call, in places that are drawn in secret for each call. Of the
third and the fourth one is chosen in secret, unless a call is judged in full:

inputs       how closely elements agree with a second draw of torch's from the same inputs, by rank and by equality of
             values that are rare elsewhere
order        how ranks rise or fall along the rows: draws that were sorted are no longer in the order of drawing
pairs        the joint histogram of elements some places apart, over a grid of ranks: few places, powers of two, any
echoes       likeness of the result to itself any number of places on, also plus a constant (modulo the range) or
             mirrored; computed with ranks as angles
coincidences how many values stand more than once in a row

Probability of a false alarm: given the inputs, an honest draw and torch's own are exchangeable, element by element.
So the first four differ by sums of terms of random sign, whose tails are known. For a sum the bound is Hoeffding's.
For a sum of squares over a grid it is that of Hanson and Wright: the matrix is a Laplacian divided by its degrees,
with no eigenvalue beyond 2, and pairs are disjoint. Coincidences are counts: Chernoff, with the spread of torch's
own. Together this is less than 1e-9 for a call, as computed.

Elements that depend on one another widen all of these. Whenever a call is judged in full, the widening is measured on
torch's own draws against each other, and allowed. Small results and rare differences show over many calls: sums are
also kept over the calls of a trial (the judging of one kernel on one case).

Honest kernels may round differently, and may have generators with more or fewer values than torch's. So coincidences
of floating-point values may be half or twice as many, and as many as one of 2**20 values has.
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
    """One result of one case, call after call."""

    def __init__(self, *, each_once: bool = False) -> None:
        """``each_once``: the operator promises that no value comes twice in a row."""
        self._inputs = InputAgreement()
        self._order = OrderAlongRows()
        self._pairs = Pairs()
        self._echoes = Autocorrelation()
        self._coincidences = DuplicatesInRows(each_once)

    def misfit(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        """How a result depends on something otherwise than torch's; None: it does not.

        ``own``: torch's draws of the call, ``(draws, *shape)``: two, or many to learn from.

        The first call must have many.
        """
        rows, result = real_rows(own), real_rows(got.unsqueeze(0))[0]
        if not result.numel() or rows.shape[1] != result.numel() or len(rows) < 2:
            return None
        is_float = own.dtype.is_floating_point or own.dtype.is_complex
        row_length = 0 if own.dtype.is_complex or own.dim() < 2 else own.shape[-1]
        draw = ExaminedDraw(rows, result, row_length, torch.finfo(own.dtype).eps if is_float else 0.0)
        slow = (self._pairs, self._echoes)
        parts = (self._inputs, self._order, self._coincidences, *(slow if draw.in_full else (secrets.choice(slow),)))
        return next((text for part in parts if (text := part.misfit(draw)) is not None), None)
