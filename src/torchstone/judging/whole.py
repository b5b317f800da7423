"""The plans ``whole`` and ``none``: all booleans True, or all False; with the first, indices one after the other.

A mask without padding is all True, and positions are 0, 1, 2 and so on: what a kernel does about such arguments as a
whole, instead of about each element, no drawn tensor of more than a few elements meets.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, overlaps
from torchstone.judging.lots import Lot

WHOLE, NONE = "whole", "none"
_INDICES = (torch.int32, torch.int64)


def plans_as_a_whole(case: schema.Case, *, once: bool) -> list[str]:
    """``once``: no value may come twice; but what booleans choose from is not looked for."""
    recipes = schema.tensors_of(case)
    if any(map(_is_mask, recipes)):
        return [WHOLE, NONE]
    return [WHOLE] if not once and any(map(_may_count, recipes)) else []


def plant_whole(call: DrawnCall, lot: Lot, plan: str) -> None:
    for tensor in call.tensors:
        if _is_mask(tensor.recipe):
            tensor.storage.fill_(plan == WHOLE)
        elif plan == WHOLE and not lot.once and _may_count(tensor.recipe):
            _count_up(tensor.view, tensor.recipe.fill, lot)


def _is_mask(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Booleans) and math.prod(recipe.shape) > 1


def _may_count(recipe: schema.Tensor) -> bool:
    counts = isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0 and recipe.fill.high > 1
    fits = counts and operators.torch_dtype(recipe.dtype) in _INDICES
    return fits and math.prod(recipe.shape) > 1 and not overlaps(recipe)


def _count_up(view: torch.Tensor, fill: schema.Fill, lot: Lot) -> None:
    """From anywhere on, if all of them fit; otherwise from 0 on, again and again."""
    assert isinstance(fill, schema.Integers)
    begin = lot.structure.randint(0, max(0, fill.high - view.numel()))
    numbers = (begin + torch.arange(view.numel())) % fill.high
    view.copy_(numbers.reshape(view.shape).to(view.dtype).to(view.device))
