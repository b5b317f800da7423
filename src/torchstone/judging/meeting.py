"""The plan ``meeting``: indices that come several times, where what meets is added, multiplied or compared.

Where of two writes to one place either may win, indices are drawn so that none comes twice. For ``accumulate=True``,
``index_add`` or ``scatter_reduce`` that they may is what the operator is for: a kernel that reads, adds and writes
loses all but one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, overlaps
from torchstone.judging.lots import Lot, count_of, elements, places_in, unravelled

MEETING = "meeting"
_EVERY = 2
_INDICES = ("index", "indices")
"""Names of arguments."""


def accumulates(
    operator: str, args: Sequence[schema.Argument], kwargs: Mapping[str, schema.Argument] | None = None
) -> bool:
    """Whether what is written to one place comes together there."""
    given = dict(operators.named_arguments(operator, args, kwargs or {}))
    return (
        given.get("accumulate") == schema.Scalar(True)
        or ("reduce" in given and given["reduce"] != schema.Scalar(None))
        or "add" in operator.split(".")[1].split("_")
    )


def may_meet(case: schema.Case) -> bool:
    """Whether there are indices to repeat in a call that adds what meets."""
    return bool(_index_places(case)) and accumulates(case.operator, case.args, case.kwargs)


def plant_meeting(call: DrawnCall, lot: Lot) -> None:
    """Half of the indices become others of the tensor; of several tensors of one shape those at the same places."""
    chosen: dict[torch.Size, tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}
    for place in _index_places(call.case):
        target = elements(call.tensors[place])
        if target.shape not in chosen:
            count = count_of(target, _EVERY)
            sources = unravelled(lot.below(target.numel(), count), target.shape)
            chosen[target.shape] = places_in(target, count, lot), tuple(source.to(target.device) for source in sources)
        places, taken = chosen[target.shape]
        target[places] = target[taken]


def _index_places(case: schema.Case) -> list[int]:
    """Which of the tensors are indices, several of them and drawn."""
    named = enumerate(operators.named_tensors(case))
    return [place for place, (name, recipe) in named if name in _INDICES and _is_drawn_index(recipe)]


def _is_drawn_index(recipe: schema.Tensor) -> bool:
    return (
        isinstance(recipe.fill, schema.Integers | schema.SortedIntegers)
        and recipe.dtype in ("int32", "int64")
        and math.prod(recipe.shape) > 1
        and not overlaps(recipe)
    )
