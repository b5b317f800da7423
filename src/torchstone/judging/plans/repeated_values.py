"""Input plans (special values written into test inputs): few values, each many times, for argmax, sort, topk.

Drawn values are distinct for operators like ``sort``, ``topk`` and ``median``, since torch does not promise which of
equal values they mean. But it promises other things: no value gets lost, a stable sort keeps the order, argmax is the
first, a search passes equal boundaries together. So all values of a tensor become a few of its own. The module
:mod:`torchstone.judging.compare.ties` accepts every index that torch's promises allow.

In one of the plans the lowest of these few is -inf and the highest inf. Some whole rows are too, as in masked scores.
A kernel that marks found values with an infinity, or pads with the largest number, finds it again.

Sorted arguments stay sorted: rows of boundaries become runs, and half of the searched values are found among them.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import FLOATS, INTEGERS, CaseFacts
from torchstone.judging.plans.first_of_ties import says_which_of_equals
from torchstone.judging.plans.plan_randomness import PlanRng, elements, places_in

_LEVELS = (3, 4, 5, 16)
_SAMPLED = 64
"""Elements that are sampled to find a few levels and the ranges of values that become each level."""
_ROWS_EVERY = 8
_MOST_ROWS = 16
_SORTED = ("sorted_sequence", "boundaries")
"""Names of arguments that must be sorted."""
_ORDERED = "sorter"
"""Name of the argument that holds the sorted order of another: then neither may change."""
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
    """Whether some values may be made equal without making the call invalid. Only operators that return new tensors."""
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
    """Positions of the tensors that hold sorted rows, if no other argument says how they are sorted."""
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
    """Split the values into ranges with about equally many elements; every element becomes its range's level."""
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
    """Some rows become a single value, perhaps infinite, and some become copies of other rows."""
    if view.dim() < 2 or len(view) < 4:
        return
    few = min(max(1, len(view) // _ROWS_EVERY), _MOST_ROWS)
    chosen = rng.structure.sample(range(len(view)), 3 * few)
    for flat, row, other in zip(chosen[:few], chosen[few : 2 * few], chosen[2 * few :], strict=True):
        view[flat] = rng.structure.choice((math.inf, -math.inf)) if infinite else view[flat].flatten()[0].clone()
        view[row] = view[other].clone()


def _make_runs(view: torch.Tensor, rng: PlanRng) -> None:
    """Runs of equal values: each element becomes the first of its run, so that rows stay sorted."""
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
