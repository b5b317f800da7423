"""Input plans (special values written into test inputs): all values of one sign, where results are positions.

A search for the maximum that begins with 0 is right for every row with a value above 0. A row of log-probabilities has
none. Shifting all values would show the error too, but rounding could make two of them equal; a change of signs does
not.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import FLOATS, CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng

_MODEL_DTYPES = (torch.float32, torch.float64)
"""Dtypes for models. In narrower ones two magnitudes may be equal, and a model need not return the first of equals."""


class Above(Plan):
    """All values become their absolute values."""

    name = "above"
    phrase = "no input was below 0"
    policy = Policy(When.EVERY_CASE, Positions.REQUIRED, models=True)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.pointwise and any(_has_signs(recipe, facts.model) for recipe in facts.recipes)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            if _has_signs(tensor.recipe, schema.is_model(call.case.operator)):
                self._write(tensor.storage)  # the memory: views may overlap

    def _write(self, storage: torch.Tensor) -> None:
        storage.abs_()


class Below(Above):
    """All values become their negative absolute values."""

    name = "below"
    phrase = "no input was above 0"

    def _write(self, storage: torch.Tensor) -> None:
        storage.abs_().neg_()


def _has_signs(recipe: schema.Tensor, model: bool) -> bool:
    """Whether the tensor is drawn with values of either sign, in a dtype for which this plan is used."""
    wanted = _MODEL_DTYPES if model else FLOATS
    fits = isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in wanted
    return fits and math.prod(recipe.shape) > 1
