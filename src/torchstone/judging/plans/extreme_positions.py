"""Input plan (special values written into test inputs): the extreme, or the only True, is near the tensor's end.

A kernel that handles only whole blocks leaves out the last elements. It is wrong only if the element that decides a
maximum, or ``any``, is among them.
"""

from __future__ import annotations

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.judging.plans.base import Plan, Policy, When
from torchstone.judging.plans.case_facts import CaseFacts, is_normal
from torchstone.judging.plans.plan_randomness import PlanRng, elements, place_extremes, unravelled

_EXTREME_FACTOR = 1.25
"""Ratio of an extreme to the largest magnitude of the tensor."""


class ExtremesAtEnds(Plan):
    """Booleans: the only True, or the only False, near the end. Floats: both extremes in the last two elements."""

    name = "placed"
    phrase = "the element that decides the result was near an end of its tensor"
    policy = Policy(When.FIRST, gradients=True, factorizations=True)

    def applies(self, facts: CaseFacts) -> bool:
        booleans = any(isinstance(recipe.fill, schema.Booleans) for recipe in facts.recipes)
        sought = facts.traits.seeks_extremes and any(map(is_normal, facts.recipes))
        return not facts.traits.pointwise and (booleans or sought)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        sought = operators.traits(call.case.operator).seeks_extremes
        for tensor in call.tensors:
            if tensor.view.numel() and isinstance(tensor.recipe.fill, schema.Booleans):
                only = rng.distinct or rng.structure.random() < 0.5
                tensor.storage.fill_(not only)
                place_extremes(elements(tensor), torch.tensor([only]), rng)
            elif sought and is_normal(tensor.recipe) and tensor.view.numel() > 2:
                _put_last(elements(tensor), rng)


def _put_last(target: torch.Tensor, rng: PlanRng) -> None:
    flat = torch.tensor([target.numel() - 1, target.numel() - 2])
    extreme = _larger_than_all(target)
    extremes = torch.stack([extreme, -extreme] if rng.structure.random() < 0.5 else [-extreme, extreme])
    target[tuple(place.to(target.device) for place in unravelled(flat, target.shape))] = extremes


def place_ends(tensor: DrawnTensor, rng: PlanRng) -> None:
    """Write a new largest and a new smallest value near the end of a floating-point tensor; one may come first."""
    target = elements(tensor)
    if target.numel() > 2:
        extreme = _larger_than_all(target)
        place_extremes(target, torch.stack([extreme, -extreme]), rng)


def _larger_than_all(target: torch.Tensor) -> torch.Tensor:
    return target.abs().amax().clamp(max=torch.finfo(target.dtype).max / 2) * _EXTREME_FACTOR
