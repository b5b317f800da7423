"""The plans ``unused`` and ``loud``: what counts for nothing in a backward pass, and what counts for much.

Drawn cotangents are never 0, and of the order of 1. In training they are 0 wherever something is padded, masked or
ignored, and a loss that is scaled for float16 makes them 65 536 times as large. Gradients are linear in them: torch's
own answer is never in doubt there.
"""

from __future__ import annotations

import torch

from torchstone import schema
from torchstone.judging.inner import cotangents
from torchstone.judging.inputs import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.lots import Lot, count_of, elements, places_in

UNUSED, LOUD = "unused", "loud"
_EVERY = 4
_ALL_BUT_ONE = 0.2
_EXPONENTS = {torch.float16: (4, 8)}
"""Of float16 not far: what is added up must stay finite."""
_USUAL_EXPONENTS = (10, 16)


def plans_of_counting(case: schema.Case) -> list[str]:
    """For gradients."""
    return [UNUSED, LOUD] if schema.is_gradient(case.operator) and cotangents(case) else []


def plant_counting(call: DrawnCall, lot: Lot, plan: str) -> None:
    """Into all that say how much results count."""
    for tensor in call.tensors[: cotangents(call.case)]:
        if tensor.view.numel() and tensor.view.dtype.is_floating_point:
            _leave_out(tensor, lot) if plan == UNUSED else _enlarge(tensor, lot)


def _leave_out(tensor: DrawnTensor, lot: Lot) -> None:
    """Some elements, and some whole samples, rows or columns; or all but one element."""
    target = elements(tensor)
    if lot.structure.random() < _ALL_BUT_ONE:
        place = places_in(target, 1, lot)
        kept = target[place].clone()
        target.zero_()
        target[place] = kept
        return
    target[places_in(target, count_of(target, _EVERY), lot)] = 0.0
    if tensor.view.dim() > 1 and not overlaps(tensor.recipe):
        for dimension in {0, lot.structure.randrange(tensor.view.dim())}:
            size = tensor.view.shape[dimension]
            chosen = torch.tensor(lot.structure.sample(range(size), size // 4 or int(size > 1)), dtype=torch.int64)
            tensor.view.index_fill_(dimension, chosen.to(tensor.view.device), 0.0)


def _enlarge(tensor: DrawnTensor, lot: Lot) -> None:
    least, most = _EXPONENTS.get(tensor.view.dtype, _USUAL_EXPONENTS)
    elements(tensor).mul_(2.0 ** lot.structure.randint(least, most))
