"""The plan ``missing``: NaN in one of two arguments, of operators that then give the other.

That is what ``fmax`` and ``fmin`` are for. What becomes of NaN elsewhere most kernels that people write, and are
content with, answer otherwise than torch; so torch is asked what it makes of NaN and 1.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.judging.evaluation import OPERATOR_ERRORS
from torchstone.judging.inputs import DrawnCall
from torchstone.judging.lots import Lot, plant_into

_EVERY = 8


def may_be_missing(case: schema.Case) -> bool:
    """Whether the operator takes two tensors of floats, and of a number and NaN the number."""
    recipes = schema.tensors_of(case)
    return len(recipes) == 2 and all(map(_is_normal, recipes)) and _gives_the_other(case.operator)


@cache
def _gives_the_other(operator: str) -> bool:
    missing, number = torch.tensor([math.nan]), torch.tensor([1.0])
    called = operators.resolve(operator)
    if torch.Tag.pointwise not in called.tags:
        return False
    try:
        return all(_is_one(called(*pair)) for pair in ((missing, number), (number, missing)))
    except (*OPERATOR_ERRORS, TypeError):
        return False


def _is_one(found: Any) -> bool:
    return isinstance(found, torch.Tensor) and found.is_floating_point() and found.tolist() == [1.0]


def _is_normal(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point


def plant_missing(call: DrawnCall, lot: Lot) -> None:
    """Into both: where two meet, NaN is the answer, and not held against anyone."""
    for tensor in call.tensors:
        if tensor.view.numel():
            plant_into(tensor, lot, lambda _lot, _tensor, count: torch.full((count,), math.nan), _EVERY)
