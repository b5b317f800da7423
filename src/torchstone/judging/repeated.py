"""The plan ``repeated``: values that come many times, for operators whose results say where a value stands.

No value is drawn twice for ``sort``, ``topk``, ``median`` and their like, since torch does not promise which of equal
ones is meant. But it promises much about them all the same: none gets lost, a stable sort keeps their order, argmax is
the first, a boundary that stands twice is passed as a whole. A kernel that is wrong there would agree. So all values of
a tensor become a few of its own, and what is left open is accepted in :mod:`torchstone.judging.ties`.

The plan ``infinite`` does the same, and the lowest of these few is -inf and the highest inf, and so are some whole
rows, as where scores are masked: who overwrites what it has found with an infinity, or pads with the largest number,
finds it again.

What is sorted stays so: rows of boundaries become runs, and half of what is looked for is found among them.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.lots import Lot, elements, places_in
from torchstone.judging.wide import has_indices

REPEATED, INFINITE = "repeated", "infinite"
_LEVELS = (3, 4, 5, 16)
_SAMPLED = 64
"""Elements that tell where the levels' shares of all values end."""
_ROWS_EVERY = 8
_MOST_ROWS = 16
_SORTED = ("sorted_sequence", "boundaries")
"""Arguments that are sorted."""
_ORDERED = "sorter"
"""An argument that says how another is sorted: then that is not to be changed."""
_REPEATABLE = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
)  # fmt: skip


def may_repeat(case: schema.Case) -> bool:
    """Whether there are values of which any may equal any other, or sorted ones.

    For operators that give results of their own: in what an argument is written to, nobody looks for equal values.
    """
    pointwise = torch.Tag.pointwise in operators.resolve(case.operator).tags
    if pointwise or operators.is_view(case.operator) or operators.contract_of(case).mutated:
        return False
    if has_indices(case.operator):
        return bool(_sorted_places(case))
    return any(_is_repeatable(recipe) for recipe in schema.tensors_of(case))


def may_be_infinite(case: schema.Case) -> bool:
    """Whether what may repeat may also be infinite."""
    normal = any(isinstance(r.fill, schema.Normal) and _is_repeatable(r) for r in schema.tensors_of(case))
    return normal and may_repeat(case) and not _sorted_places(case)


def plant_repeated(call: DrawnCall, lot: Lot, plan: str) -> None:
    ordered = _sorted_places(call.case)
    for place in ordered:
        _make_runs(call.tensors[place].view, lot)
    for place, tensor in enumerate(call.tensors):
        if ordered and place not in ordered:
            _find_among(tensor, call.tensors[ordered[0]].view, lot)
        elif not ordered and _is_repeatable(tensor.recipe):
            infinite = plan == INFINITE and isinstance(tensor.recipe.fill, schema.Normal)
            _level(elements(tensor), lot, infinite)
            if not overlaps(tensor.recipe):
                _repeat_rows(tensor.view, lot, infinite)


def _is_repeatable(recipe: schema.Tensor) -> bool:
    return (
        isinstance(recipe.fill, schema.Normal | schema.Uniform | schema.Integers)
        and operators.torch_dtype(recipe.dtype) in _REPEATABLE
        and math.prod(recipe.shape) > 1
    )


def _sorted_places(case: schema.Case) -> list[int]:
    """Which of the tensors are sorted rows, by themselves."""
    named = operators.named_arguments(case.operator, case.args, case.kwargs)
    if any(name == _ORDERED and isinstance(argument, schema.Tensor) for name, argument in named):
        return []
    found, place = [], 0
    for name, argument in named:
        if name in _SORTED and isinstance(argument, schema.Tensor) and _is_sorted(argument):
            found.append(place)
        place += operators.tensor_count(argument)
    return found


def _is_sorted(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.SortedIntegers) and recipe.shape != () and recipe.shape[-1] > 1


def _level(target: torch.Tensor, lot: Lot, infinite: bool) -> None:
    """Every element becomes one of a few: which one says the stretch of values that it lies in, each about as full."""
    sample = target[places_in(target, min(_SAMPLED, target.numel()), lot)]
    sample = sample[torch.isfinite(sample)].sort().values
    if len(sample) < 2:
        return
    count = min(lot.structure.choice(_LEVELS), max(2, len(sample) // 2))
    ends = sample[[len(sample) * stretch // count for stretch in range(1, count)]]
    levels = sample[torch.randperm(len(sample), generator=lot.values)[:count].to(sample.device)]
    if infinite:
        levels[levels.argmin()], levels[levels.argmax()] = -math.inf, math.inf
    target.copy_(levels[torch.bucketize(target.contiguous(), ends, right=True)])


def _repeat_rows(view: torch.Tensor, lot: Lot, infinite: bool) -> None:
    """Some rows become one value, perhaps an infinite one, and some become others."""
    if view.dim() < 2 or len(view) < 4:
        return
    few = min(max(1, len(view) // _ROWS_EVERY), _MOST_ROWS)
    chosen = lot.structure.sample(range(len(view)), 3 * few)
    for flat, row, other in zip(chosen[:few], chosen[few : 2 * few], chosen[2 * few :], strict=True):
        view[flat] = lot.structure.choice((math.inf, -math.inf)) if infinite else view[flat].flatten()[0].clone()
        view[row] = view[other].clone()


def _make_runs(view: torch.Tensor, lot: Lot) -> None:
    """Each element becomes the last chosen one before it: sorted as before."""
    length = view.shape[-1]
    count = lot.structure.randint(1, max(1, length // 2))
    begins = torch.tensor([0, *sorted(lot.structure.sample(range(1, length), count))])
    taken = begins[torch.bucketize(torch.arange(length), begins, right=True) - 1]
    view.copy_(view[..., taken.to(view.device)].clone())


def _find_among(tensor: DrawnTensor, ordered: torch.Tensor, lot: Lot) -> None:
    """Half of what is looked for becomes values of the row that it is looked for in, as far as the recipe has them."""
    view, fill = tensor.view, tensor.recipe.fill
    rows_meet = ordered.dim() == 1 or ordered.shape[:-1] == view.shape[:-1]
    if not (_is_repeatable(tensor.recipe) and rows_meet and view.dim()) or overlaps(tensor.recipe):
        return
    taken = lot.below(ordered.shape[-1], view.shape[-1]).to(view.device)
    found = ordered[..., taken].to(view.dtype).expand(view.shape)
    may = (lot.below(2, view.shape[-1]) == 0).to(view.device).expand(view.shape)
    if isinstance(fill, schema.Uniform | schema.Integers):
        may = may & (found >= fill.low) & (found < fill.high)
    view.copy_(torch.where(may, found, view))
