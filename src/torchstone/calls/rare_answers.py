"""Operators whose answer is nearly always the same: what makes it differ, in some calls, in random places.

``any`` of thirty booleans is true, ``isnan`` of normal numbers is false, and two drawn tensors are nowhere equal. So
a kernel that answers with a constant, or with ``>=`` instead of ``>``, would agree. This is the only part of the
inputs that knows operators by name. It knows only operators that define an answer for every value written here.
Recipes keep their range: where it has no zero, none is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone import schema
from torchstone.calls import value_mixture
from torchstone.calls.value_mixture import DrawRng

_CLASSIFY = frozenset({"isnan", "isinf", "isfinite", "isposinf", "isneginf"})
_COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isclose"})
_COMPARE_WHOLE = frozenset({"equal", "allclose"})
_REDUCE = frozenset({"any", "all"})
_CHANGED_SHARE = 0.5
"""Of the calls of an operator that makes one answer of a whole tensor."""
_EQUAL_SHARE = 0.25
"""Of the elements that are compared with one another."""
_FEW = 2
"""Elements that may stand out in a tensor that is otherwise of one kind; 0 is as likely."""

Argument = tuple[schema.Tensor, torch.Tensor]
"""A recipe and the view of its values in one call."""


def concern(operator: str) -> bool:
    """Whether there is anything to vary."""
    return _base_name(operator) in _CLASSIFY | _COMPARE | _COMPARE_WHOLE | _REDUCE


def vary(operator: str, arguments: Sequence[Argument], dice: DrawRng) -> None:
    """Change the values of one call in place. The views have an element of memory for each element."""
    name = _base_name(operator)
    filled = [(recipe, view) for recipe, view in arguments if view.numel()]
    if name in _CLASSIFY:
        _sprinkle(filled, dice)
    elif name in _COMPARE:
        _share(filled, dice, whole=False)
    elif dice.structure.random() < _CHANGED_SHARE:
        if name in _COMPARE_WHOLE:
            _share(filled, dice, whole=True)
        elif filled:
            _saturate(*filled[0], dice, truth=name == "all")


def _base_name(operator: str) -> str:
    return operator.split(".")[1]


def _sprinkle(arguments: Sequence[Argument], dice: DrawRng) -> None:
    for recipe, view in arguments:
        if isinstance(recipe.fill, schema.Normal) and view.dtype.is_floating_point:
            values = view.reshape(1, -1).clone()
            value_mixture.sprinkle_specials(values, dice)
            view.copy_(values.reshape(view.shape))


def _share(arguments: Sequence[Argument], dice: DrawRng, *, whole: bool) -> None:
    """Some elements of the second tensor become those of the first; if whole, all but a few."""
    if len(arguments) < 2 or arguments[0][1].dtype != arguments[1][1].dtype:
        return
    (_, one), (_, other) = arguments[:2]
    if one.shape != other.shape:
        return
    if whole:
        shared = torch.ones(one.numel(), dtype=torch.bool, device=one.device)
        shared[_few_places(shared, dice)] = False
        shared = shared.view(one.shape)
    else:
        shared = dice.uniform(*one.shape) < _EQUAL_SHARE
    other.copy_(torch.where(shared, one, other))


def _saturate(recipe: schema.Tensor, view: torch.Tensor, dice: DrawRng, *, truth: bool) -> None:
    """All elements but a few zero, or none but a few."""
    other = _value_beside_zero(recipe)
    if other is None:
        return
    values = torch.where(view == 0, other, view).to(view.dtype).reshape(-1)
    zero = torch.full(values.shape, not truth, device=view.device)
    zero[_few_places(view, dice)] = truth
    view.copy_(values.masked_fill(zero, 0).reshape(view.shape))


def _value_beside_zero(recipe: schema.Tensor) -> float | int | bool | None:
    """A value of the recipe that is not 0; None where there is none, or 0 is not among its values."""
    match recipe.fill:
        case schema.Booleans(p_true=p) if 0.0 < p < 1.0:
            return True
        case schema.Normal(mean=mean, std=std) if std:
            return mean + std if mean + std else std
        case schema.Uniform(low=low, high=high) if low <= 0.0 < high:
            return high / 2.0
        case schema.Integers(low=low, high=high) if low <= 0 < high and high > 1:
            return 1
        case _:
            return None


def _few_places(like: torch.Tensor, dice: DrawRng) -> list[int]:
    return [dice.structure.randrange(like.numel()) for _ in range(dice.structure.randint(0, _FEW))]
