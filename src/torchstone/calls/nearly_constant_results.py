"""Changes arguments of operators whose result is nearly always the same (any, isnan, equal), so that results differ.

``any`` of thirty booleans is true, ``isnan`` of normal numbers is false, and two drawn tensors are nowhere equal. So
a kernel that answers with a constant, or with ``>=`` instead of ``>``, would agree. The traits of an operator tell
whether it is one of these; all of them define an answer for every value written here. Values stay in the range of
their recipe: where it has no zero, none is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.calls import value_mixture
from torchstone.calls.value_mixture import DrawRng

_CHANGED_SHARE = 0.5
"""Share of calls that are changed, of an operator that gives one answer for a whole tensor."""
_EQUAL_SHARE = 0.25
"""Share of elements that become equal, of an operator that compares elements."""
_FEW = 2
"""Most elements that differ from the rest of a tensor; 0, 1 and 2 are equally likely."""

Argument = tuple[schema.Tensor, torch.Tensor]
"""A recipe and the view of its values in one call."""


def applies_to(operator: str) -> bool:
    """Whether :func:`vary` changes calls of this operator."""
    traits = operators.traits(operator)
    return traits.classifies or traits.compares or traits.compares_whole or traits.reduces_flags


def vary(operator: str, arguments: Sequence[Argument], dice: DrawRng) -> None:
    """Change the values of one call in place. The views must not be expanded."""
    traits = operators.traits(operator)
    filled = [(recipe, view) for recipe, view in arguments if view.numel()]
    if traits.classifies:
        _sprinkle(filled, dice)
    elif traits.compares:
        _share(filled, dice, whole=False)
    elif dice.structure.random() < _CHANGED_SHARE:
        if traits.compares_whole:
            _share(filled, dice, whole=True)
        elif filled:
            _saturate(*filled[0], dice, truth=traits.base == "all")


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
    """``truth``: no element but a few is zero; else all but a few are zero."""
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
