"""Input plan: NaN and infinities among the inputs of pointwise operators, for one more call of each stated case.

Every element of such an operator is its own question, so these answer for nobody else. ``x * (x > 0)`` gives NaN at
negative infinity, where relu gives 0, and ``where(x > 0, x, 0)`` gives 0 at NaN. A kernel is held to torch's answer
where torch stands by it (:mod:`torchstone.judging.vetting`); NaN that torch makes of an infinity is left open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.judging.evaluation import Place
from torchstone.judging.inputs import DrawnCall, DrawnTensor
from torchstone.judging.lots import Lot, count_of, elements, places_in

NON_FINITE = "non-finite inputs"
_TABLE = (math.nan, math.inf, -math.inf)
_EVERY = 16
"""One element in so many, and at least one of each kind where there is room."""
_NOT_DECIDED = frozenset({"remainder", "softshrink"})
"""Operators for which ``torch.compile`` gives another answer than torch: of a number modulo infinity, and of NaN."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def may_be_non_finite(case: schema.Case, results: Sequence[torch.dtype | None]) -> bool:
    """Whether the operator is pointwise and takes floats of any value. ``results`` are the dtypes of what it returns.

    Of a conversion to whole numbers, or to a float8 without infinities, C++ and torch promise nothing there.
    """
    name = case.operator.split(".")[1].removesuffix("_")
    if torch.Tag.pointwise not in operators.resolve(case.operator).tags:
        return False
    if name in _NOT_DECIDED or "polynomial" in name:  # whose degree is a float
        return False
    defined = all(dtype in (*_FLOATS, torch.bool) for dtype in results)
    return defined and any(_takes_any(recipe) and math.prod(recipe.shape) for recipe in schema.tensors_of(case))


def plant_non_finite(call: DrawnCall, lot: Lot) -> None:
    """Into every tensor that takes any value. Not into a single number beside others: it would meet all of them."""
    tensors = [tensor for tensor in call.tensors if tensor.view.numel() and _takes_any(tensor.recipe)]
    most = max(tensor.view.numel() for tensor in tensors)
    for tensor in tensors:
        if tensor.view.numel() > 1 or most == 1:
            _plant(tensor, lot)


def _plant(tensor: DrawnTensor, lot: Lot) -> None:
    target = elements(tensor)
    count = min(target.numel(), max(len(_TABLE), count_of(target, _EVERY)))
    kinds = torch.arange(count).add(lot.structure.randrange(len(_TABLE))).remainder(len(_TABLE))
    values = torch.tensor(_TABLE, dtype=torch.float64)[kinds]
    target[places_in(target, count, lot)] = values.to(target.dtype).to(target.device)


def left_open(call: DrawnCall, place: Place, native: torch.Tensor) -> torch.Tensor:
    """Elements of a result at which any answer is right.

    NaN that torch makes though no argument is NaN: another formula may know better. ``silu`` of negative infinity is
    NaN in torch, and 0 as a limit. And where several non-finite arguments meet: C's ``hypot`` of NaN and infinity is
    infinity.
    """
    if place.kind == "argument":
        return torch.isnan(native) & ~torch.isnan(call.tensors[place.position].storage)
    views = [tensor.view for tensor in call.tensors if tensor.view.is_floating_point()]
    try:
        no_numbers = sum(_expanded(torch.isnan(view), native) for view in views)
        infinities = sum(_expanded(torch.isinf(view), native) for view in views)
    except RuntimeError:  # not arguments that meet the result element by element
        return torch.isnan(native)
    made = torch.isnan(native) & (no_numbers == 0)
    return made | (no_numbers + infinities > 1)


def _expanded(flags: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    return flags.to(torch.int8).expand(native.shape)


def _takes_any(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _FLOATS
