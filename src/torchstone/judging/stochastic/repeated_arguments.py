"""Check of random results: repeating a call with the same arguments must give another draw.

A hash of the input, or of its address, looks random as long as no input is passed twice. So some calls of random
operators are repeated bit for bit, in the same block (calls that are made together) and in later blocks. Half of the
repeats in later blocks lie at the same place in memory. A kernel cannot foresee which calls are repeated. Between
repeats, torch's results differ in many elements. A candidate's results must differ in nearly as many.

Probability of a false alarm: given the inputs, an element differs as probably between two draws of torch's as between
two of an honest candidate's. So the difference of the two counts is a sum of terms of random sign. It exceeds
``sqrt(2 * EXPONENT * terms)`` with a probability of less than exp(-EXPONENT) (Hoeffding). Elements that change
together count as one. For small results, counts are also added up over the repeats of a trial.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from random import SystemRandom
from typing import NamedTuple

import torch

from torchstone.calls.draw_arguments import DrawnCall
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.secret_places import secret_places

EXPONENT = 30.0
"""The n-th comparison raises a false alarm with a probability of less than exp(-EXPONENT) / n."""
_FEWER_DIFFERENCES_SLACK = 0.1
"""Share by which fewer elements may differ between a candidate's draws: its generator may have fewer values."""
_FIRST_BLOCKS, _ONE_IN_BLOCKS = 8, 4
"""This many first blocks always have repeats; of later blocks one in this many."""
_MOST_REPEATED_CALLS = 6
"""Most calls that are repeated in later blocks: their arguments and results are kept."""
_MOST_KEPT_RESULTS = 4
"""Most results that are kept of a repeated call."""
_MOST_ELEMENTS = 1 << 15
"""Most elements of a result that are compared."""


class Repeats:
    """Repeats some calls of one case, and compares the results of repeats."""

    def __init__(self) -> None:
        self._repeated_calls: list[_RepeatedCall] = []
        self._blocks = 0
        self._in_all: dict[str, _Count] = {}
        self._comparisons = 0

    def insert_repeats(self, calls: Sequence[DrawnCall]) -> list[DrawnCall]:
        """Return the calls of a block, with some replaced by other calls of this block, of earlier ones, or of both."""
        self._blocks += 1
        found = list(calls)
        if not found or (self._blocks > _FIRST_BLOCKS and secrets.randbelow(_ONE_IN_BLOCKS)):
            return found
        free = SystemRandom().sample(range(len(found)), len(found))
        earlier = self._repeated_calls and (len(found) > 2 or secrets.randbelow(2))
        if len(found) > 1 and earlier:
            again = SystemRandom().choice(self._repeated_calls)
            place = again.place if again.place in free and secrets.randbelow(2) else free[0]
            free.remove(place)
            found[place] = again.call
        if len(found) > 1 and (len(found) > 2 or not earlier):
            found[free[0]] = found[free[1]]
            free.pop(0)
        self._keep_for_repeats(found[free[0]], free[0])
        return found

    def _keep_for_repeats(self, call: DrawnCall, place: int) -> None:
        if len(self._repeated_calls) < _MOST_REPEATED_CALLS and not any(
            each.call is call for each in self._repeated_calls
        ):
            self._repeated_calls.append(_RepeatedCall(call, place, {}))

    def mismatch_text(
        self, call: DrawnCall, name: str, own: torch.Tensor, got: torch.Tensor, at_once: float
    ) -> str | None:
        """Return how a result repeats an earlier result for the same arguments, or None. Keep some for later calls.

        ``own``: torch's draw for this call. ``at_once``: how many elements change together.
        """
        repeated_call = next((each for each in self._repeated_calls if each.call is call), None)
        if repeated_call is None or not got.numel():
            return None
        drawn, result = real_rows(own.unsqueeze(0))[0], real_rows(got.unsqueeze(0))[0]
        if drawn.numel() != result.numel():
            return None
        seen = repeated_call.seen.setdefault(
            name, _KeptResults(secret_places(result.numel(), _MOST_ELEMENTS).to(result.device), [])
        )
        drawn, result = drawn[seen.places], result[seen.places]
        texts = [self._compare(name, _count(*pair, drawn, result), at_once) for pair in seen.pairs]
        if len(seen.pairs) < _MOST_KEPT_RESULTS:
            seen.pairs.append((drawn, result))
        return next((text for text in texts if text is not None), None)

    def _compare(self, name: str, count: _Count, at_once: float) -> str | None:
        self._comparisons += 1
        before = self._in_all.get(name, _Count(0, 0, 0))
        together = self._in_all[name] = _Count(*(one + other for one, other in zip(before, count, strict=True)))
        exponent = EXPONENT + math.log(self._comparisons)
        for each, where in ((count, ""), (together, " in all calls")):
            allowed = math.sqrt(2.0 * exponent * each.terms * at_once)
            if (1.0 - _FEWER_DIFFERENCES_SLACK) * each.torchs - each.candidates > allowed:
                return (
                    f"calls with the same arguments return too similar draws: {each.candidates} elements differ "
                    f"between two calls{where}; between torch's draws {each.torchs} differ"
                )
        return None


class _KeptResults(NamedTuple):
    """Values of one result at secret positions, for each repeat of a call: torch's and the candidate's."""

    places: torch.Tensor
    pairs: list[tuple[torch.Tensor, torch.Tensor]]


class _RepeatedCall(NamedTuple):
    """A call that is repeated in later blocks, with its results so far by name."""

    call: DrawnCall
    place: int
    """Its position in the block in which it was first made: this determines where in memory its arguments lie."""
    seen: dict[str, _KeptResults]


class _Count(NamedTuple):
    """Elements that differ between two calls with the same arguments."""

    torchs: int
    candidates: int
    terms: int
    """Elements that differ in torch's draws or in the candidate's, but not in both."""


def _count(torchs_before: torch.Tensor, before: torch.Tensor, torchs_now: torch.Tensor, now: torch.Tensor) -> _Count:
    torchs, candidates = _differ(torchs_before, torchs_now), _differ(before, now)
    found = torch.stack([torchs.sum(), candidates.sum(), (torchs ^ candidates).sum()]).tolist()
    return _Count(*found)


def _differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one != other) & ~((one != one) & (other != other))
