"""The plan ``wide``: whole numbers of every length that their dtype holds, where they are numbers and no indices.

Suites draw whole numbers near 0, as most callers have them. So a kernel that computes in fewer bits, or in float32,
would agree. torch wraps around, in sums and products too, and that is what float64 evaluations of whole numbers do:
they stay whole numbers.
"""

from __future__ import annotations

import itertools

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.lots import Lot, count_of, elements, place_extremes, places_in

_EVERY = 4
"""One element in so many, if not all."""
_NEAR_EVERY = 8
_EDGES = tuple(
    sign * ((1 << bits) + by) for bits in (7, 8, 15, 16, 24, 31, 32, 53) for by in (-1, 0, 1) for sign in (1, -1)
)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_DIVIDE = ("div", "remainder", "fmod", "gcd", "lcm")
"""Parts of names. The least number by -1 ends the process on most hosts, and 0 is refused."""
_COUNTING_ARGUMENTS = (("pow", "exponent"), ("shift", "other"), ("ldexp", "other"))
"""Parts of names of operators, and what says how often something is done there. Powers of no number have no tensor."""
_COUNT = ("polynomial", "bincount", "one_hot", "repeat_interleave", "embedding", "segment", "unsafe")
"""Parts of names of operators that take as many steps, or as much memory, as an argument says, or trust an index."""
_INDICES = ("index", "indices", "idx", "target", "offset", "length", "repeats", "sorter", "splits", "bag", "boundaries")
"""Parts of the names of arguments that may be used as indices."""
_SORTED = ("sorted_sequence",)


def numbers_in(case: schema.Case) -> list[int]:
    """Which of a case's tensors are whole numbers, and neither indices nor counts: by the names of the arguments, but
    for ranges that are partly negative, which no index has.
    """
    base = case.operator.split(".")[1]
    counting = [name for part, name in _COUNTING_ARGUMENTS if part in base]
    return [
        place
        for place, (name, recipe) in enumerate(operators.named_tensors(case))
        if name not in counting and _is_number(recipe, may_be_index=any(part in name for part in (*_INDICES, *_SORTED)))
    ]


def _is_number(recipe: schema.Tensor, *, may_be_index: bool) -> bool:
    return (
        isinstance(recipe.fill, schema.Integers)
        and (recipe.fill.low < 0 or not may_be_index)
        and operators.torch_dtype(recipe.dtype) in _WHOLE
    )


def takes_wide(operator: str) -> bool:
    """Whether any whole number is one that the operator may be given."""
    return not any(part in operator.split(".")[1] for part in _COUNT)


def has_indices(operator: str) -> bool:
    """Whether some argument may be an index: one out of range is the end of a process on a device."""
    names = [argument.name for argument in operators.resolve(operator)._schema.arguments]
    return any(part in name for name in names for part in _INDICES)


def plant_wide(call: DrawnCall, lot: Lot) -> None:
    """Into some elements or into all; and where two tensors meet, numbers next to one another."""
    chosen = [call.tensors[place] for place in numbers_in(call.case)]
    tensors = [tensor for tensor in chosen if tensor.view.numel()]
    everywhere = lot.structure.random() < 0.5
    for tensor in tensors:
        target = elements(tensor)
        count = target.numel() if everywhere else count_of(target, _EVERY)
        target[places_in(target, count, lot)] = _numbers(lot, target.dtype, count).to(target.device)
        place_extremes(target, torch.tensor(_ends(lot, target.dtype)), lot)
    for one, other in itertools.combinations([] if _divides(lot) else tensors, 2):
        _bring_near(one, other, lot)


def _numbers(lot: Lot, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Half of them random ones of any length, half next to where a shorter kind of number ends."""
    limits = torch.iinfo(dtype)
    any_ = torch.randint(0, 1 << 62, (count,), generator=lot.values) >> lot.below(62, count)
    any_ = ((any_ >> (64 - limits.bits)) | (1 if _divides(lot) else 0)) * lot.signs(count).long()
    edges = torch.tensor([edge for edge in _EDGES if limits.min < edge <= limits.max])
    return torch.where(lot.below(2, count) == 0, any_, edges[lot.below(len(edges), count)]).to(dtype)


def _ends(lot: Lot, dtype: torch.dtype) -> tuple[int, int]:
    limits = torch.iinfo(dtype)
    return limits.max, limits.min + (1 if _divides(lot) else 0)


def divides(operator: str) -> bool:
    """Whether 0, and the least number by -1, must not be given to it."""
    return any(part in operator.split(".")[1] for part in _DIVIDE)


def _divides(lot: Lot) -> bool:
    return divides(lot.case.operator)


def _bring_near(one: DrawnTensor, other: DrawnTensor, lot: Lot) -> None:
    """What float32 or float64 take for equal: some elements become those opposite, or one more or less."""
    if one.view.shape == other.view.shape and one.view.dtype == other.view.dtype and not overlaps(one.recipe):
        target = one.view if one.view.dim() else one.view.view(1)
        count = count_of(target, _NEAR_EVERY)
        places = places_in(target, count, lot)
        by = (lot.below(3, count) - 1).to(target.dtype).to(target.device)
        target[places] = other.view.reshape(target.shape)[places] + by
