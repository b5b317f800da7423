"""The plans ``below`` and ``above``: every value on one side of zero, for operators that say where a value stands.

Whoever looks for the largest and begins at 0 is right wherever something is above it, and a row of log-probabilities
has nothing there. Where values are returned as well, moving all of them far away shows it; indices must not come to
mean another value by rounding. So a value becomes its magnitude, or that with a minus.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall

BELOW, ABOVE = "below", "above"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_OF_MODEL = (torch.float32, torch.float64)
"""In fewer bits two magnitudes may be equal, and which of them a model means nobody says."""


def may_be_on_one_side(case: schema.Case) -> bool:
    """Whether there are values of either sign that have to do with one another."""
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    return not pointwise and any(_may(recipe, case) for recipe in schema.tensors_of(case))


def plant_on_one_side(call: DrawnCall, plan: str) -> None:
    for tensor in call.tensors:
        if _may(tensor.recipe, call.case):
            tensor.storage.abs_()  # the memory: views may overlap
            if plan == BELOW:
                tensor.storage.neg_()


def _may(recipe: schema.Tensor, case: schema.Case) -> bool:
    wanted = _OF_MODEL if schema.is_model(case.operator) else _FLOATS
    fits = isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in wanted
    return fits and math.prod(recipe.shape) > 1
