"""Input plan (special values written into test inputs): rows, samples or channels of one value.

Rows of one value have no variance, and rows of zeros no length: a kernel that divides by it needs the operator's eps.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, overlaps
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts, is_unbounded
from torchstone.judging.plans.plan_randomness import PlanRng

_ROWS_EVERY = 8
_FLAT = (1.0, -1.0, 0.5, 2.0, -2.0, 3.0, 4.0)
"""Sums of these are exact in any order: a variance that is not 0 is the kernel's own error."""


class ConstantRows(Plan):
    """Some rows (last dimension), one or two samples (first) and, of three dimensions or more, a channel (second)."""

    name = "flat"
    phrase = "some rows, samples or channels held one value, others only 0"
    policy = Policy(positions=Positions.EXCLUDED, gradients=True, models=True)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.pointwise and any(is_unbounded(each) and _has_rows(each) for each in facts.filled)

    def when(self, facts: CaseFacts) -> When:
        return When.LARGE if facts.model else self.policy.when

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Any finite number for a variance or standard deviation: of equal values it is 0, or what rounding leaves."""
        if self.excuses_numbers(call):
            return torch.isfinite(got)
        return super().excuses(call, place, native, got)

    def excuses_numbers(self, call: DrawnCall) -> bool:
        return operators.traits(call.case.operator).measures_deviation

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if isinstance(tensor.recipe.fill, schema.Normal) and tensor.view.numel() and _has_rows(tensor.recipe):
                _flatten(tensor.view, rng)


def _has_rows(recipe: schema.Tensor) -> bool:
    return recipe.shape != () and math.prod(recipe.shape) > 1 and not overlaps(recipe)


def _flatten(view: torch.Tensor, rng: PlanRng) -> None:
    if view.dim() == 1:
        if rng.structure.random() < 0.25:
            view.fill_(rng.structure.choice((0.0, *_FLAT)))
        return
    rows = math.prod(view.shape[:-1])
    for place in rng.structure.sample(range(rows), min(max(1, rows // _ROWS_EVERY), 16)):
        view[_unravel(place, view.shape[:-1])] = rng.structure.choice((0.0, *_FLAT))
    if view.dim() > 2 and view.shape[1] > 1:
        view[:, rng.structure.randrange(view.shape[1])] = rng.structure.choice((0.0, *_FLAT))
    if len(view) > 1:
        zero, flat = rng.structure.sample(range(len(view)), 2)
        view[flat] = rng.structure.choice(_FLAT)
        view[zero] = 0.0
    elif rng.structure.random() < 0.5:
        view.fill_(rng.structure.choice((0.0, *_FLAT)))


def _unravel(place: int, shape: torch.Size) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(place % size)
        place //= size
    return tuple(found[::-1])
