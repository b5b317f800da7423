"""Input plans: few different values, each many times, for operators whose results tell positions.

Drawn values are distinct for operators like ``sort``, ``topk`` and ``median``, since torch does not promise which of
equal values they mean. But it promises other things: no value gets lost, a stable sort keeps the order, argmax is the
first, equal boundaries are passed together. So all values of a tensor become a few of its own. What torch leaves open
is accepted in :mod:`torchstone.judging.compare.ties`.

In one of the plans the lowest of these few is -inf and the highest inf. Some whole rows are too, as in masked scores.
A kernel that marks found values with an infinity, or pads with the largest number, finds it again.

Sorted arguments stay sorted: rows of boundaries become runs, and half of the searched values are found among them.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from torchstone import operators, schema
from torchstone.calls.drawing import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.facts import FLOATS, INTEGERS, CaseFacts
from torchstone.judging.plans.first_of_ties import says_which_of_equals
from torchstone.judging.plans.plan_randomness import PlanRng, elements, places_in

_LEVELS = (3, 4, 5, 16)
_SAMPLED = 64
"""Elements that tell where the levels' shares of all values end."""
_ROWS_EVERY = 8
_MOST_ROWS = 16
_SORTED = ("sorted_sequence", "boundaries")
"""Arguments that are sorted."""
_ORDERED = "sorter"
"""An argument that says how another is sorted: then that is not to be changed."""
_REPEATABLE = (*FLOATS, *INTEGERS)


class RepeatedValues(Plan):
    """A few of a tensor's own values, each many times."""

    name = "repeated"
    phrase = "inputs held only a few different values, each many times"
    policy = Policy(When.EVERY_CALL, Positions.REQUIRED, models=True, factorizations=True)
    _infinite: ClassVar[bool] = False
    """Whether the lowest and the highest value are infinite."""

    def applies(self, facts: CaseFacts) -> bool:
        if facts.model:
            return facts.like is not None and _may_repeat(facts.case) and says_which_of_equals(facts.like.call)
        return not facts.traits.factorizes and _may_repeat(facts.case)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        ordered = _sorted_places(call.case)
        for place in ordered:
            _make_runs(call.tensors[place].view, rng)
        for place, tensor in enumerate(call.tensors):
            if ordered and place not in ordered:
                _find_among(tensor, call.tensors[ordered[0]].view, rng)
            elif not ordered and _is_repeatable(tensor.recipe):
                infinite = self._infinite and isinstance(tensor.recipe.fill, schema.Normal)
                _level(elements(tensor), rng, infinite)
                if not overlaps(tensor.recipe):
                    _repeat_rows(tensor.view, rng, infinite)


class RepeatedInfinities(RepeatedValues):
    """The same with infinities among them."""

    name = "infinite"
    phrase = "inputs held only a few different values, inf and -inf among them"
    policy = Policy(When.EVERY_CASE, Positions.REQUIRED)
    _infinite = True

    def applies(self, facts: CaseFacts) -> bool:
        normal = any(isinstance(each.fill, schema.Normal) and _is_repeatable(each) for each in facts.recipes)
        return normal and _may_repeat(facts.case) and not _sorted_places(facts.case)


def _may_repeat(case: schema.Case) -> bool:
    """Whether there are values of which any may equal any other, or sorted ones.

    For operators that return new tensors: equal values in an argument that is written to are of no interest.
    """
    traits = operators.traits(case.operator)
    if traits.pointwise or operators.is_view(case.operator) or operators.contract_of(case).mutated:
        return False
    if traits.has_index_arguments:
        return bool(_sorted_places(case))
    return any(_is_repeatable(recipe) for recipe in schema.tensors_of(case))


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


def _level(target: torch.Tensor, rng: PlanRng, infinite: bool) -> None:
    """Every element becomes the level of the range of values that it lies in; each range holds about as many."""
    sample = target[places_in(target, min(_SAMPLED, target.numel()), rng)]
    sample = sample[torch.isfinite(sample)].sort().values
    if len(sample) < 2:
        return
    count = min(rng.structure.choice(_LEVELS), max(2, len(sample) // 2))
    ends = sample[[len(sample) * stretch // count for stretch in range(1, count)]]
    levels = sample[torch.randperm(len(sample), generator=rng.values)[:count].to(sample.device)]
    if infinite:
        levels[levels.argmin()], levels[levels.argmax()] = -math.inf, math.inf
    target.copy_(levels[torch.bucketize(target.contiguous(), ends, right=True)])


def _repeat_rows(view: torch.Tensor, rng: PlanRng, infinite: bool) -> None:
    """Some rows become one value, perhaps an infinite one, and some become others."""
    if view.dim() < 2 or len(view) < 4:
        return
    few = min(max(1, len(view) // _ROWS_EVERY), _MOST_ROWS)
    chosen = rng.structure.sample(range(len(view)), 3 * few)
    for flat, row, other in zip(chosen[:few], chosen[few : 2 * few], chosen[2 * few :], strict=True):
        view[flat] = rng.structure.choice((math.inf, -math.inf)) if infinite else view[flat].flatten()[0].clone()
        view[row] = view[other].clone()


def _make_runs(view: torch.Tensor, rng: PlanRng) -> None:
    """Each element becomes the last chosen one before it: sorted as before."""
    length = view.shape[-1]
    count = rng.structure.randint(1, max(1, length // 2))
    begins = torch.tensor([0, *sorted(rng.structure.sample(range(1, length), count))])
    taken = begins[torch.bucketize(torch.arange(length), begins, right=True) - 1]
    view.copy_(view[..., taken.to(view.device)].clone())


def _find_among(tensor: DrawnTensor, ordered: torch.Tensor, rng: PlanRng) -> None:
    """Half of the searched values become values of the row that is searched, as far as the recipe allows them."""
    view, fill = tensor.view, tensor.recipe.fill
    rows_meet = ordered.dim() == 1 or ordered.shape[:-1] == view.shape[:-1]
    if not (_is_repeatable(tensor.recipe) and rows_meet and view.dim()) or overlaps(tensor.recipe):
        return
    taken = rng.below(ordered.shape[-1], view.shape[-1]).to(view.device)
    found = ordered[..., taken].to(view.dtype).expand(view.shape)
    may = (rng.below(2, view.shape[-1]) == 0).to(view.device).expand(view.shape)
    if isinstance(fill, schema.Uniform | schema.Integers):
        may = may & (found >= fill.low) & (found < fill.high)
    view.copy_(torch.where(may, found, view))
