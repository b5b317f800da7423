"""Plans about rows and ends: ``masked``, ``flat``, ``placed``.

Masks are -inf, or the least number, in some elements of a row and in all elements of a few. Rows of one value have no
variance, and rows of zeros no length: what divides by it needs the operator's eps. And the one element that decides a
maximum, or ``any``, may stand at the end, where blocks leave it out.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.lots import Lot, elements, place_extremes, plant_into, unravelled
from torchstone.judging.padded import mask_runs

_EVERY_MASKED = 8
_ROWS_EVERY = 8
_FLAT = (1.0, -1.0, 0.5, 2.0, -2.0, 3.0, 4.0)
"""Sums of these are exact in any order: what is left of a variance is the kernel's own."""
_SEEKING = frozenset({
    "amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin", "max", "min", "sort", "topk",
})  # fmt: skip
_MASKABLE = frozenset({
    "amax", "aminmax", "argmax", "cummax", "log_softmax", "logcumsumexp", "logsumexp", "max", "safe_softmax", "softmax",
    "topk",
})  # fmt: skip
"""Operators that people mask the arguments of. Others make NaN of it in more than one honest formula:
``x * (x > 0)`` is a relu."""
_FURTHER = 1.25
"""How much further out than all others an extreme lies."""


def is_maskable(case: schema.Case) -> bool:
    return case.operator.split(".")[1].removeprefix("_") in _MASKABLE or has_classes(case)


def has_classes(case: schema.Case) -> bool:
    """Whether rows are scores of classes, one of which is the target: the others may be masked."""
    declared = [argument.name for argument in operators.resolve(case.operator)._schema.arguments]
    target = case.args[declared.index("target")] if "target" in declared[: len(case.args)] else None
    return isinstance(target, schema.Tensor) and isinstance(target.fill, schema.Integers)


def plant_masks(call: DrawnCall, lot: Lot) -> None:
    """No row as a whole where equal values must not come: there at most one of each kind.

    Of scores only one: a target that is masked is no number, and with it the sum of all.
    """
    for tensor in call.tensors:
        if not (tensor.view.numel() and isinstance(tensor.recipe.fill, schema.Normal)):
            continue
        if has_classes(call.case):
            plant_into(tensor, lot, lambda _lot, _tensor, _count: torch.tensor([-math.inf]), 1)
            return
        masks = (-math.inf, torch.finfo(tensor.view.dtype).min)
        plant_into(tensor, lot, lambda lot, _, count, masks=masks: lot.chosen(masks, count), _EVERY_MASKED)  # type: ignore[misc]
        if not lot.once and not overlaps(tensor.recipe) and tensor.view.dim() > 1 and len(tensor.view) > 2:
            rows = lot.structure.sample(range(len(tensor.view)), max(1, len(tensor.view) // 16))
            tensor.view.index_fill_(0, torch.tensor(rows, device=tensor.view.device), -math.inf)
        if not lot.once and tensor.view.dim() and tensor.view.shape[-1] > 1 and not overlaps(tensor.recipe):
            mask_runs(tensor.view, lot, -math.inf)


def may_be_flat(recipe: schema.Tensor) -> bool:
    return recipe.shape != () and math.prod(recipe.shape) > 1 and not overlaps(recipe)


def plant_flat(call: DrawnCall, lot: Lot) -> None:
    """Some stretches of the last dimension, one or two of the first, and one of the second where there is a third."""
    for tensor in call.tensors:
        if isinstance(tensor.recipe.fill, schema.Normal) and tensor.view.numel() and may_be_flat(tensor.recipe):
            _flatten(tensor.view, lot)


def _flatten(view: torch.Tensor, lot: Lot) -> None:
    if view.dim() == 1:
        if lot.structure.random() < 0.25:
            view.fill_(lot.structure.choice((0.0, *_FLAT)))
        return
    rows = math.prod(view.shape[:-1])
    for place in lot.structure.sample(range(rows), min(max(1, rows // _ROWS_EVERY), 16)):
        view[_unravel(place, view.shape[:-1])] = lot.structure.choice((0.0, *_FLAT))
    if view.dim() > 2 and view.shape[1] > 1:
        view[:, lot.structure.randrange(view.shape[1])] = lot.structure.choice((0.0, *_FLAT))
    if len(view) > 1:
        zero, flat = lot.structure.sample(range(len(view)), 2)
        view[flat] = lot.structure.choice(_FLAT)
        view[zero] = 0.0
    elif lot.structure.random() < 0.5:
        view.fill_(lot.structure.choice((0.0, *_FLAT)))


def _unravel(place: int, shape: torch.Size) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(place % size)
        place //= size
    return tuple(found[::-1])


def places_matter(case: schema.Case) -> bool:
    """Whether one boolean may decide a result, not only its own element, or one number is what the operator seeks."""
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    booleans = any(isinstance(recipe.fill, schema.Booleans) for recipe in schema.tensors_of(case))
    return not pointwise and (booleans or (_seeks(case) and any(map(_is_normal, schema.tensors_of(case)))))


def _seeks(case: schema.Case) -> bool:
    return case.operator.split(".")[1] in _SEEKING


def _is_normal(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point


def plant_placed(call: DrawnCall, lot: Lot) -> None:
    """The only True, or the only False, at an end of each tensor of booleans; of floats both extremes, at the end."""
    for tensor in call.tensors:
        if tensor.view.numel() and isinstance(tensor.recipe.fill, schema.Booleans):
            only = lot.once or lot.structure.random() < 0.5
            tensor.storage.fill_(not only)
            place_extremes(elements(tensor), torch.tensor([only]), lot)
        elif _seeks(call.case) and _is_normal(tensor.recipe) and tensor.view.numel() > 2:
            _put_last(elements(tensor), lot)


def _put_last(target: torch.Tensor, lot: Lot) -> None:
    flat = torch.tensor([target.numel() - 1, target.numel() - 2])
    far = target.abs().amax().clamp(max=torch.finfo(target.dtype).max / 2) * _FURTHER
    extremes = torch.stack([far, -far] if lot.structure.random() < 0.5 else [-far, far])
    target[tuple(place.to(target.device) for place in unravelled(flat, target.shape))] = extremes


def place_ends(tensor: DrawnTensor, lot: Lot) -> None:
    """The largest and the smallest of a tensor of floats, each further out than all others, at its ends."""
    target = elements(tensor)
    if target.numel() > 2:
        far = target.abs().amax().clamp(max=torch.finfo(target.dtype).max / 2) * _FURTHER
        place_extremes(target, torch.stack([far, -far]), lot)
