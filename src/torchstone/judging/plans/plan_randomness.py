"""The random numbers of an input plan (special values written into test inputs), and which elements it overwrites.

They are drawn on the CPU, so that a plan is the same on every device. No element is written twice, so that the order of
writes does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from torchstone import schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor

_MOST_PLANTED = 4096
"""Most elements of a tensor that one plan writes to."""
LAST = 64
"""Elements at the end of a tensor that a kernel which works on whole blocks may leave out."""


class PlanRng:
    """The randomness of one plan, on the CPU: the same for every device."""

    def __init__(self, call: DrawnCall, recorded_name: str, *, distinct: bool) -> None:
        """``recorded_name``: the plan's name in records, which seeds the randomness together with the call."""
        self.case = call.case
        self.distinct = distinct
        """Whether the plan must write no value twice."""
        self.structure = random.Random(f"{call.seed}/{call.count}/{call.index}/{recorded_name}")
        self.values = torch.Generator().manual_seed(self.structure.getrandbits(63))

    def uniform(self, low: float, high: float, count: int) -> torch.Tensor:
        """``count`` float64 numbers from [low, high)."""
        return torch.rand(count, generator=self.values, dtype=torch.float64) * (high - low) + low

    def below(self, high: int, count: int) -> torch.Tensor:
        """``count`` integers from [0, high)."""
        return torch.randint(0, high, (count,), generator=self.values)

    def signs(self, count: int) -> torch.Tensor:
        """``count`` numbers, each 1.0 or -1.0."""
        return self.below(2, count) * 2.0 - 1.0

    def chosen(self, table: Sequence[float], count: int) -> torch.Tensor:
        """``count`` random entries of the table; if values must be distinct, each at most once, so perhaps fewer."""
        if not table:
            return torch.empty(0, dtype=torch.float64)
        values = torch.tensor(table, dtype=torch.float64)
        if self.distinct:
            return values[torch.randperm(len(table), generator=self.values)[:count]]
        return values[self.below(len(table), count)]


DrawValues = Callable[[PlanRng, DrawnTensor, int], torch.Tensor]
"""Draws up to ``count`` values for one tensor; fewer, or none, if fewer are possible."""


def plant_where(
    call: DrawnCall, rng: PlanRng, values: DrawValues, every: int, fits: Callable[[schema.Tensor], bool]
) -> None:
    """Write values to one element in ``every`` of the tensors whose recipe fits."""
    for tensor in call.tensors:
        if tensor.view.numel() and fits(tensor.recipe):
            plant_into(tensor, rng, values, every)


def plant_into(tensor: DrawnTensor, rng: PlanRng, values: DrawValues, every: int) -> None:
    """Write values to one element in ``every``, and to at least one."""
    target = elements(tensor)
    drawn = values(rng, tensor, count_of(target, every))
    if len(drawn):
        target[places_in(target, len(drawn), rng)] = drawn.to(target.dtype).to(target.device)


def elements(tensor: DrawnTensor) -> torch.Tensor:
    """The tensor's elements, each once where it is expanded; flat if they are contiguous."""
    view = tensor.view
    for dimension, stride in enumerate(tensor.recipe.strides or ()):
        if stride == 0 and view.shape[dimension] > 1:
            view = view.narrow(dimension, 0, 1)
    return view.view(-1) if view.is_contiguous() else view


def count_of(target: torch.Tensor, every: int) -> int:
    """How many elements to write: one in ``every``, at least 1 and at most 4096."""
    return min(max(1, target.numel() // every), _MOST_PLANTED)


def places_in(target: torch.Tensor, count: int, rng: PlanRng) -> tuple[torch.Tensor, ...]:
    """Indices of ``count`` elements: a random one in each of ``count`` consecutive parts of equal length."""
    length = target.numel() // count
    start = rng.structure.randint(0, target.numel() - count * length)
    flat = torch.arange(start, start + count * length, length) + rng.below(length, count)
    return tuple(place.to(target.device) for place in unravelled(flat, target.shape))


def unravelled(flat: torch.Tensor, shape: Sequence[int]) -> list[torch.Tensor]:
    """As ``torch.unravel_index``, which imports torch's compiler."""
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat = flat // size
    return found[::-1]


def place_extremes(target: torch.Tensor, extremes: torch.Tensor, rng: PlanRng) -> None:
    """Write each extreme to one of the last elements, with probability 1/2 one of them to the very last.

    In a tensor of more than ``LAST`` elements, the first element may get one instead.
    """
    total = target.numel()
    count = min(len(extremes), total)
    free = [total - 1 - place for place in rng.structure.sample(range(min(LAST, total)), min(count, total, LAST))]
    if rng.structure.random() < 0.5:
        free = [total - 1, *(place for place in free if place != total - 1)][:count]
    if total > LAST and len(free) > 1 and rng.structure.random() < 0.5:
        free[-1] = 0
    order = rng.structure.sample(range(len(extremes)), len(free))
    places = unravelled(torch.tensor(free), target.shape)
    target[tuple(place.to(target.device) for place in places)] = extremes[order].to(target.dtype).to(target.device)
