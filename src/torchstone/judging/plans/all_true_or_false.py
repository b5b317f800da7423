"""Input plans (special values written into test inputs): booleans all True and indices counting up, or all False.

A mask without padding is all True, and positions are 0, 1, 2 and so on. A kernel may have a shortcut for such
arguments. Drawn tensors of more than a few elements are never like that.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, overlaps
from torchstone.judging.plans.base import Plan, Policy, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng

_INDEX_DTYPES = (torch.int32, torch.int64)


class Whole(Plan):
    """Booleans are all True; indices count up, unless results are positions (argmax, sort)."""

    name = "whole"
    phrase = "boolean inputs were all True, indices counted up"
    policy = Policy(When.EVERY_CASE)

    def applies(self, facts: CaseFacts) -> bool:
        counts = not facts.tells_positions and any(map(_may_count, facts.recipes))
        return counts or any(map(_is_mask, facts.recipes))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if _is_mask(tensor.recipe):
                tensor.storage.fill_(True)
            elif not rng.distinct and _may_count(tensor.recipe):
                _fill_with_counting(tensor.view, tensor.recipe.fill, rng)


class NoneTrue(Plan):
    """Booleans are all False."""

    name = "none"
    phrase = "boolean inputs were all False"
    policy = Policy(When.EVERY_CASE)

    def applies(self, facts: CaseFacts) -> bool:
        return any(map(_is_mask, facts.recipes))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if _is_mask(tensor.recipe):
                tensor.storage.fill_(False)


def _is_mask(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Booleans) and math.prod(recipe.shape) > 1


def _may_count(recipe: schema.Tensor) -> bool:
    counts = isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0 and recipe.fill.high > 1
    fits = counts and operators.torch_dtype(recipe.dtype) in _INDEX_DTYPES
    return fits and math.prod(recipe.shape) > 1 and not overlaps(recipe)


def _fill_with_counting(view: torch.Tensor, fill: schema.Fill, rng: PlanRng) -> None:
    """Write consecutive integers modulo the range, from a random first one if the range is long enough, else from 0."""
    assert isinstance(fill, schema.Integers)
    first = rng.structure.randint(0, max(0, fill.high - view.numel()))
    numbers = (first + torch.arange(view.numel())) % fill.high
    view.copy_(numbers.reshape(view.shape).to(view.dtype).to(view.device))
