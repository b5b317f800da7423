"""The plan ``padded``: whole blocks of a row are masked, from its beginning or up to its end, as padding does it.

For arguments that are named masks, of operators whose elements have to do with one another. No row as a whole: what is
left of it is what the answer is about. A kernel that works block by block must know a block with nothing in it.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, overlaps
from torchstone.judging.lots import Lot


def has_mask(case: schema.Case) -> bool:
    """Whether an argument is named so, with rows to be masked in part, and others depend on more than its element."""
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    return not pointwise and bool(_masks(case))


def plant_padded(call: DrawnCall, lot: Lot) -> None:
    for position in _masks(call.case):
        view = call.tensors[position].view
        if view.dtype is torch.bool:
            mask_runs(view, lot, False)
            view[..., -1] |= ~view.any(-1)
        else:
            mask_runs(view, lot, -math.inf)


def mask_runs(view: torch.Tensor, lot: Lot, value: float) -> None:
    """Between half of a row and all but its last element, in about two of three rows, of several from either end."""
    size = view.shape[-1]
    rows = view.shape[:-1]
    count = math.prod(rows)
    lengths = (size // 2 + lot.below(size - size // 2, count)).to(view.device)
    kept = lot.below(3, count)
    if count > 1:
        kept[torch.tensor(lot.structure.sample(range(count), 2))] = torch.tensor([0, 1])
    kept = kept.to(view.device)
    columns = torch.arange(size, device=view.device)
    leading = (kept == 0)[:, None] & (columns < lengths[:, None])
    trailing = (kept == 1)[:, None] & (columns >= size - lengths[:, None])
    view.masked_fill_((leading | trailing).reshape(*rows, size), value)


def _masks(case: schema.Case) -> list[int]:
    """Positions among the tensors of the case."""
    named = operators.named_arguments(case.operator, case.args, case.kwargs)
    owners = [name for name, argument in named for _ in range(operators.tensor_count(argument))]
    recipes = schema.tensors_of(case)
    return [at for at, name in enumerate(owners) if "mask" in name and _may_be_padded(recipes[at])]


def _may_be_padded(recipe: schema.Tensor) -> bool:
    """Of floats, those that are added: then -inf masks. Of booleans, False does in attention."""
    floating = isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point
    fits = floating or isinstance(recipe.fill, schema.Booleans)
    return fits and recipe.shape != () and recipe.shape[-1] > 1 and not overlaps(recipe) and math.prod(recipe.shape) > 0
