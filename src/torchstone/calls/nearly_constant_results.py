"""Changes arguments of operators whose result is nearly always the same (any, isnan, equal), so that results differ.

For drawn values, ``any`` of thirty booleans is true, ``isnan`` is false, and two tensors differ everywhere. So a kernel
that returns a constant, or computes ``>=`` instead of ``>``, would agree. The traits of an operator tell whether it is
one of these; all of them define a result for every value written here. Values stay in the range of their recipe: if
that excludes zero, none is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.calls import value_mixture
from torchstone.calls.value_mixture import DrawRng

_CHANGED_SHARE = 0.5
"""Share of calls that are changed, for an operator that gives one result for a whole tensor."""
_EQUAL_SHARE = 0.25
"""Share of elements that become equal, for an operator that compares elements."""
_MOST_DIFFERENT = 2
"""Most elements that differ from the rest of a tensor; 0, 1 and 2 are equally likely."""

Argument = tuple[schema.Tensor, torch.Tensor]
"""A recipe and the view of its values in one call."""


def applies_to(operator: str) -> bool:
    """Whether :func:`vary` changes calls of this operator."""
    traits = operators.traits(operator)
    return traits.classifies or traits.compares or traits.compares_whole or traits.reduces_flags


def vary(operator: str, arguments: Sequence[Argument], rng: DrawRng) -> None:
    """Change the values of one call in place. The views must not be expanded."""
    traits = operators.traits(operator)
    filled = [(recipe, view) for recipe, view in arguments if view.numel()]
    if traits.classifies:
        _add_special_values(filled, rng)
    elif traits.compares:
        _make_elements_equal(filled, rng, nearly_all=False)
    elif rng.structure.random() < _CHANGED_SHARE:
        if traits.compares_whole:
            _make_elements_equal(filled, rng, nearly_all=True)
        elif filled:
            _set_all_but_few(*filled[0], rng, nonzero=traits.base == "all")


def _add_special_values(arguments: Sequence[Argument], rng: DrawRng) -> None:
    for recipe, view in arguments:
        if isinstance(recipe.fill, schema.Normal) and view.dtype.is_floating_point:
            values = view.reshape(1, -1).clone()
            value_mixture.sprinkle_specials(values, rng)
            view.copy_(values.reshape(view.shape))


def _make_elements_equal(arguments: Sequence[Argument], rng: DrawRng, *, nearly_all: bool) -> None:
    """Copy elements of the first tensor to the second: a share of them or, if ``nearly_all``, all but a few."""
    if len(arguments) < 2 or arguments[0][1].dtype != arguments[1][1].dtype:
        return
    (_, one), (_, other) = arguments[:2]
    if one.shape != other.shape:
        return
    if nearly_all:
        shared = torch.ones(one.numel(), dtype=torch.bool, device=one.device)
        shared[_few_positions(shared, rng)] = False
        shared = shared.view(one.shape)
    else:
        shared = rng.uniform(*one.shape) < _EQUAL_SHARE
    other.copy_(torch.where(shared, one, other))


def _set_all_but_few(recipe: schema.Tensor, view: torch.Tensor, rng: DrawRng, *, nonzero: bool) -> None:
    """Make all elements but a few zero or, if ``nonzero``, not zero."""
    other = _nonzero_value(recipe)
    if other is None:
        return
    values = torch.where(view == 0, other, view).to(view.dtype).reshape(-1)
    zero = torch.full(values.shape, not nonzero, device=view.device)
    zero[_few_positions(view, rng)] = nonzero
    view.copy_(values.masked_fill(zero, 0).reshape(view.shape))


def _nonzero_value(recipe: schema.Tensor) -> float | int | bool | None:
    """A value of the recipe other than 0; None if there is none, or if 0 is not among its values."""
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


def _few_positions(like: torch.Tensor, rng: DrawRng) -> list[int]:
    return [rng.structure.randrange(like.numel()) for _ in range(rng.structure.randint(0, _MOST_DIFFERENT))]
