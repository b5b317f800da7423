"""Check of random results: the same arguments again must give other draws.

A hash of the input, or of its address, looks as random as any generator as long as no input comes twice. So some calls
of random operators are made again, bit for bit, in the same block (calls that are made together) and in later ones.
Half of the latter have the same place in memory. A kernel cannot foresee which calls. torch's results for them differ
in many elements; a candidate's must differ in nearly as many.

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

from torchstone.calls.random_arguments import DrawnCall
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.secret_places import secret_places

EXPONENT = 30.0
"""The n-th comparison goes wrong by chance with a probability of less than exp(-EXPONENT) / n."""
_SLACK = 0.1
"""Share by which a candidate's draws may differ in fewer elements: its generator may have fewer values."""
_ALWAYS, _ONE_IN = 8, 4
"""The first blocks always have repeats; of later ones one in this many."""
_WATCHED = 6
"""Most calls that are made again in later blocks: their arguments and results are kept."""
_COMPARED_WITH = 4
"""Most results of such a call that are kept."""
_LOOKED_AT = 1 << 15


class Repeats:
    """The calls of one case that are made again."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._blocks = 0
        self._in_all: dict[str, _Count] = {}
        self._comparisons = 0

    def put_among(self, calls: Sequence[DrawnCall]) -> list[DrawnCall]:
        """These calls, some replaced by another call of this block, of an earlier block, or both."""
        self._blocks += 1
        found = list(calls)
        if not found or (self._blocks > _ALWAYS and secrets.randbelow(_ONE_IN)):
            return found
        free = SystemRandom().sample(range(len(found)), len(found))
        earlier = self._watched and (len(found) > 2 or secrets.randbelow(2))
        if len(found) > 1 and earlier:
            again = SystemRandom().choice(self._watched)
            place = again.place if again.place in free and secrets.randbelow(2) else free[0]
            free.remove(place)
            found[place] = again.call
        if len(found) > 1 and (len(found) > 2 or not earlier):
            found[free[0]] = found[free[1]]
            free.pop(0)
        self._watch(found[free[0]], free[0])
        return found

    def _watch(self, call: DrawnCall, place: int) -> None:
        if len(self._watched) < _WATCHED and not any(each.call is call for each in self._watched):
            self._watched.append(_Watched(call, place, {}))

    def misfit(self, call: DrawnCall, name: str, own: torch.Tensor, got: torch.Tensor, at_once: float) -> str | None:
        """How a result repeats that of a call with the same arguments. ``own``: torch's draw of this call."""
        watched = next((each for each in self._watched if each.call is call), None)
        if watched is None or not got.numel():
            return None
        drawn, result = real_rows(own.unsqueeze(0))[0], real_rows(got.unsqueeze(0))[0]
        if drawn.numel() != result.numel():
            return None
        seen = watched.seen.setdefault(name, _Seen(secret_places(result.numel(), _LOOKED_AT).to(result.device), []))
        drawn, result = drawn[seen.places], result[seen.places]
        texts = [self._compared(name, _count(*pair, drawn, result), at_once) for pair in seen.pairs]
        if len(seen.pairs) < _COMPARED_WITH:
            seen.pairs.append((drawn, result))
        return next((text for text in texts if text is not None), None)

    def _compared(self, name: str, count: _Count, at_once: float) -> str | None:
        self._comparisons += 1
        before = self._in_all.get(name, _Count(0, 0, 0))
        together = self._in_all[name] = _Count(*(one + other for one, other in zip(before, count, strict=True)))
        exponent = EXPONENT + math.log(self._comparisons)
        for each, where in ((count, ""), (together, " in all calls")):
            allowed = math.sqrt(2.0 * exponent * each.terms * at_once)
            if (1.0 - _SLACK) * each.torchs - each.candidates > allowed:
                return (
                    f"the same arguments give the same draw: {each.candidates} elements differ from one call to "
                    f"another with the same arguments{where}, {each.torchs} of torch's own"
                )
        return None


class _Seen(NamedTuple):
    """Elements of a result in secret places: torch's and the candidate's of each time that the call was made."""

    places: torch.Tensor
    pairs: list[tuple[torch.Tensor, torch.Tensor]]


class _Watched(NamedTuple):
    call: DrawnCall
    place: int
    """Its first position in a block, which decides where in memory its arguments lie."""
    seen: dict[str, _Seen]


class _Count(NamedTuple):
    """Elements that differ between two calls with the same arguments."""

    torchs: int
    candidates: int
    terms: int
    """Elements that differ in torch's draws and not in the candidate's, or the other way round."""


def _count(torchs_before: torch.Tensor, before: torch.Tensor, torchs_now: torch.Tensor, now: torch.Tensor) -> _Count:
    torchs, candidates = _differ(torchs_before, torchs_now), _differ(before, now)
    found = torch.stack([torchs.sum(), candidates.sum(), (torchs ^ candidates).sum()]).tolist()
    return _Count(*found)


def _differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one != other) & ~((one != one) & (other != other))
