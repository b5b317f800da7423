"""The randomness of a plan of planted values, and the places of a tensor that it writes to.

Drawn on the host, so that a plan is the same on every device; places are all different, so that writes have one order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from torchstone.judging.inputs import DrawnCall, DrawnTensor

ONCE = " once"
"""Ends the name of a plan that repeats no value: for results that say where a value stands, if that may be anywhere."""
_MOST = 4096
"""Of a tensor."""
LAST = 64
"""So many elements at the end are what is left over when a kernel works on whole blocks."""


class Lot:
    """The randomness of one plan, on the host: the same for every device."""

    def __init__(self, call: DrawnCall, plan: str) -> None:
        self.case = call.case
        self.once = plan.endswith(ONCE)
        self.structure = random.Random(f"{call.seed}/{call.count}/{call.index}/{plan}")
        self.values = torch.Generator().manual_seed(self.structure.getrandbits(63))

    def uniform(self, low: float, high: float, count: int) -> torch.Tensor:
        return torch.rand(count, generator=self.values, dtype=torch.float64) * (high - low) + low

    def below(self, high: int, count: int) -> torch.Tensor:
        return torch.randint(0, high, (count,), generator=self.values)

    def signs(self, count: int) -> torch.Tensor:
        return self.below(2, count) * 2.0 - 1.0

    def chosen(self, table: Sequence[float], count: int) -> torch.Tensor:
        """Any of these, each at most once if none may come again."""
        if not table:
            return torch.empty(0, dtype=torch.float64)
        values = torch.tensor(table, dtype=torch.float64)
        if self.once:
            return values[torch.randperm(len(table), generator=self.values)[:count]]
        return values[self.below(len(table), count)]


Values = Callable[[Lot, DrawnTensor, int], torch.Tensor]
"""So many values for one tensor; fewer, or none, where fewer fit."""


def plant_into(tensor: DrawnTensor, lot: Lot, values: Values, every: int) -> None:
    target = elements(tensor)
    drawn = values(lot, tensor, count_of(target, every))
    if len(drawn):
        target[places_in(target, len(drawn), lot)] = drawn.to(target.dtype).to(target.device)


def elements(tensor: DrawnTensor) -> torch.Tensor:
    """The tensor's elements, each once where it is expanded; flat if they lie so."""
    view = tensor.view
    for dimension, stride in enumerate(tensor.recipe.strides or ()):
        if stride == 0 and view.shape[dimension] > 1:
            view = view.narrow(dimension, 0, 1)
    return view.view(-1) if view.is_contiguous() else view


def count_of(target: torch.Tensor, every: int) -> int:
    return min(max(1, target.numel() // every), _MOST)


def places_in(target: torch.Tensor, count: int, lot: Lot) -> tuple[torch.Tensor, ...]:
    """One in each of as many stretches: all different, so that writes have one order on every device."""
    stretch = target.numel() // count
    begin = lot.structure.randint(0, target.numel() - count * stretch)
    flat = torch.arange(begin, begin + count * stretch, stretch) + lot.below(stretch, count)
    return tuple(place.to(target.device) for place in unravelled(flat, target.shape))


def unravelled(flat: torch.Tensor, shape: Sequence[int]) -> list[torch.Tensor]:
    """As torch's function, which imports its compiler for that."""
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat = flat // size
    return found[::-1]


def place_extremes(target: torch.Tensor, extremes: torch.Tensor, lot: Lot) -> None:
    """Each of these to one of the last elements, to the very last one half of the time: blocks may leave those out.

    If there is room, the first of all elements may get the last of them.
    """
    total = target.numel()
    count = min(len(extremes), total)
    free = [total - 1 - place for place in lot.structure.sample(range(min(LAST, total)), min(count, total, LAST))]
    if lot.structure.random() < 0.5:
        free = [total - 1, *(place for place in free if place != total - 1)][:count]
    if total > LAST and len(free) > 1 and lot.structure.random() < 0.5:
        free[-1] = 0
    order = lot.structure.sample(range(len(extremes)), len(free))
    places = unravelled(torch.tensor(free), target.shape)
    target[tuple(place.to(target.device) for place in places)] = extremes[order].to(target.dtype).to(target.device)
