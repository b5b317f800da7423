"""Input plan (special values written into test inputs): rows, samples or channels of one value.

Rows of one value have variance 0, and rows of zeros have norm 0: a kernel that divides by it needs the operator's eps.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, overlaps
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts, is_unbounded
from torchstone.judging.plans.plan_randomness import PlanRng

_ROWS_EVERY = 8
"""One row in this many becomes constant, at least 1 and at most 16 rows."""
_ROW_VALUES = (1.0, -1.0, 0.5, 2.0, -2.0, 3.0, 4.0)
"""Values of a row. Their sums are exact in any order: a variance that is not 0 is an error of the kernel."""


class ConstantRows(Plan):
    """Some rows, one or two samples (first dimension) and, if there are three dimensions, a channel (second)."""

    name = "flat"
    phrase = "some rows, samples or channels held one value, others only 0"
    policy = Policy(positions=Positions.EXCLUDED, gradients=True, models=True)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.pointwise and any(is_unbounded(each) and _has_rows(each) for each in facts.filled)

    def when(self, facts: CaseFacts) -> When:
        return When.LARGE if facts.model else self.policy.when

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Any finite result of a variance or standard deviation: for equal values it is 0 or a rounding error."""
        if self.excuses_numbers(call):
            return torch.isfinite(got)
        return super().excuses(call, place, native, got)

    def excuses_numbers(self, call: DrawnCall) -> bool:
        return operators.traits(call.case.operator).measures_deviation

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if isinstance(tensor.recipe.fill, schema.Normal) and tensor.view.numel() and _has_rows(tensor.recipe):
                _make_constant(tensor.view, rng)


def _has_rows(recipe: schema.Tensor) -> bool:
    return recipe.shape != () and math.prod(recipe.shape) > 1 and not overlaps(recipe)


def _make_constant(view: torch.Tensor, rng: PlanRng) -> None:
    if view.dim() == 1:
        if rng.structure.random() < 0.25:
            view.fill_(rng.structure.choice((0.0, *_ROW_VALUES)))
        return
    rows = math.prod(view.shape[:-1])
    for place in rng.structure.sample(range(rows), min(max(1, rows // _ROWS_EVERY), 16)):
        view[_unravel(place, view.shape[:-1])] = rng.structure.choice((0.0, *_ROW_VALUES))
    if view.dim() > 2 and view.shape[1] > 1:
        view[:, rng.structure.randrange(view.shape[1])] = rng.structure.choice((0.0, *_ROW_VALUES))
    if len(view) > 1:
        zero, flat = rng.structure.sample(range(len(view)), 2)
        view[flat] = rng.structure.choice(_ROW_VALUES)
        view[zero] = 0.0
    elif rng.structure.random() < 0.5:
        view.fill_(rng.structure.choice((0.0, *_ROW_VALUES)))


def _unravel(place: int, shape: torch.Size) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(place % size)
        place //= size
    return tuple(found[::-1])
