"""Calls of operators that draw random numbers: which of their results are judged by distribution, and against what.

Separate from :mod:`torchstone.judging.distribution`, which knows numbers and nothing of calls. The candidate's last
draw is kept, because a draw that is right once and returned for ever is not random; and a fingerprint of every draw,
because a few of them in turn are not either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from torchstone.judging import distribution
from torchstone.judging.evaluation import Evaluator, Place, Tensors
from torchstone.judging.inputs import DrawnCall, batched_view
from torchstone.judging.probing import inside_view

_ALWAYS_RANDOM = "bernoulli"
"""Its draws may all be equal, and yet the next one is not."""


def draws_random_numbers(evaluator: Evaluator) -> bool:
    """Whether the operator may draw. Some do not with the arguments of a case: dropout that is not training."""
    return torch.Tag.nondeterministic_seeded in evaluator.operator.tags


def _fingerprint(values: torch.Tensor) -> int:
    """Of the values, not of where they stand: a pool of draws handed out in another order is still a pool."""
    bits = values.contiguous().flatten().view(torch.uint8).to(torch.int64)
    width = values.element_size()
    words = (bits.view(-1, width) << (8 * torch.arange(width, device=bits.device) % 56)).sum(dim=1)
    mixed = words * 0x2545F4914F6CDD1D  # wraps around, and is odd: different words stay different
    return int((mixed ^ (mixed >> 29)).sum())


class Lottery:
    """One case's random results, call after call."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._name = evaluator.case.operator.split(".")[1]
        self._last: Tensors = {}
        self._fingerprints: dict[Place, set[int]] = defaultdict(set)
        self._continuous: dict[Place, bool] = {}
        self.idle: bool | None = None
        """Whether nothing is drawn with the arguments of this case, as far as calls judged in full have shown."""

    def draws(self, call: DrawnCall, elements: int) -> Tensors | None:
        """torch's own draws of a call, stacked; None if they are all the same: nothing random, so values are judged."""
        evaluation = self._evaluator.native([call] * distribution.count_for(elements))
        if evaluation is None:
            return None
        constant = all(bool((tensor == tensor[:1]).all()) for tensor in evaluation.tensors.values())
        small = elements < distribution.FEW_ELEMENTS or self._name.startswith(_ALWAYS_RANDOM)
        self.idle = constant and not small and self.idle is not False
        return None if self.idle else evaluation.tensors

    def misfit(
        self, draws: Tensors, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor], in_full: bool
    ) -> tuple[Place, str] | None:
        """Where a call's results are not what torch would draw, and how. ``draws`` has one row if not in full."""
        seen: Tensors = {}
        for place, drawn in draws.items():
            got = (outputs if place.kind == "output" else inputs_after)[place.position]
            if place.kind == "argument":
                if not self._same_outside(place, drawn[0], got):
                    return place, "elements outside the view changed"
                drawn, got = self._inside(place, drawn), self._inside(place, got.unsqueeze(0))[0]
            text = self._text(place, drawn, got, in_full) or self._repetition(place, drawn[0], got)
            if text is not None:
                return place, text
            seen[place] = got.clone()
        self._last = seen
        return None

    def _text(self, place: Place, drawn: torch.Tensor, got: torch.Tensor, in_full: bool) -> str | None:
        before = self._last.get(place)
        if in_full:
            return distribution.misfit(distribution.Draws(self._name, drawn, before), got)
        return distribution.quick_misfit(drawn[0], got, before)

    def _repetition(self, place: Place, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Whether exactly these values were drawn before, in whatever order.

        Only where that cannot happen by chance, or always does: flags and permutations are the same set every time.
        """
        if got.numel() < distribution.FEW_ELEMENTS or not got.is_floating_point():
            return None
        if place not in self._continuous:
            repeated = drawn.flatten().sort().values.diff() == 0
            self._continuous[place] = int(repeated.sum()) < drawn.numel() / 2
        if not self._continuous[place]:
            return None
        fingerprint = _fingerprint(got)
        known = fingerprint in self._fingerprints[place]
        self._fingerprints[place].add(fingerprint)
        return "the same values as in an earlier call" if known else None

    def _inside(self, place: Place, storages: torch.Tensor) -> torch.Tensor:
        return batched_view(storages, self._evaluator.recipes[place.position])

    def _same_outside(self, place: Place, native: torch.Tensor, got: torch.Tensor) -> bool:
        inside = inside_view(self._evaluator, place.position, native)
        return bool(((got == native) | inside | (got.isnan() & native.isnan())).all())
