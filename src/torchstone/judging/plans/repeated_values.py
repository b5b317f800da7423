"""Input plans (special values written into test inputs): few values, each many times, for argmax, sort, topk.

Drawn values are distinct for operators like ``sort``, ``topk`` and ``median``, since torch does not promise which of
equal values their indices mean. But torch promises other things: no value gets lost, a stable sort keeps the order,
``argmax`` returns the first, a search treats equal boundaries alike. So all values of a tensor become a few of its own.
The module :mod:`torchstone.judging.compare.ties` accepts every index that torch's promises allow.

In one of the plans the lowest of these few values is -inf and the highest inf. Some whole rows become infinite too, as
in masked scores. A kernel that marks found values with an infinity, or pads with the largest number, finds it again.

Sorted arguments stay sorted: rows of boundaries become runs, and half of the searched values equal one of them.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import FLOATS, INTEGERS, CaseFacts
from torchstone.judging.plans.first_of_ties import promises_first_of_ties
from torchstone.judging.plans.plan_randomness import PlanRng, elements, places_in

_LEVEL_COUNTS = (3, 4, 5, 16)
"""Numbers of different values, one of them chosen for each tensor."""
_SAMPLED_ELEMENTS = 64
"""Elements that are sampled to find these values (levels), and the range of values that each one replaces."""
_ROWS_EVERY = 8
_MOST_ROWS = 16
"""One row in 8 becomes a single value, and one a copy of another row; of each kind at most 16."""
_SORTED_ARGUMENTS = ("sorted_sequence", "boundaries")
"""Names of arguments that must be sorted."""
_ORDER_ARGUMENT = "sorter"
"""Name of the argument that holds the sorted order of another one: if given, neither may change."""
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
            return facts.like is not None and _may_repeat(facts.case) and promises_first_of_ties(facts.like.call)
        return not facts.traits.factorizes and _may_repeat(facts.case)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        sorted_positions = _sorted_positions(call.case)
        for place in sorted_positions:
            _make_runs(call.tensors[place].view, rng)
        for place, tensor in enumerate(call.tensors):
            if sorted_positions and place not in sorted_positions:
                _copy_from_sorted(tensor, call.tensors[sorted_positions[0]].view, rng)
            elif not sorted_positions and _is_repeatable(tensor.recipe):
                infinite = self._infinite and isinstance(tensor.recipe.fill, schema.Normal)
                _reduce_to_levels(elements(tensor), rng, infinite)
                if not overlaps(tensor.recipe):
                    _repeat_rows(tensor.view, rng, infinite)


class RepeatedInfinities(RepeatedValues):
    """As :class:`RepeatedValues`, with infinities among the few values."""

    name = "infinite"
    phrase = "inputs held only a few different values, inf and -inf among them"
    policy = Policy(When.EVERY_CASE, Positions.REQUIRED)
    _infinite = True

    def applies(self, facts: CaseFacts) -> bool:
        normal = any(isinstance(each.fill, schema.Normal) and _is_repeatable(each) for each in facts.recipes)
        return normal and _may_repeat(facts.case) and not _sorted_positions(facts.case)


def _may_repeat(case: schema.Case) -> bool:
    """Whether some values may be made equal without making the call invalid. False for views and in-place operators."""
    traits = operators.traits(case.operator)
    if traits.pointwise or operators.is_view(case.operator) or operators.contract_of(case).mutated:
        return False
    if traits.has_index_arguments:
        return bool(_sorted_positions(case))
    return any(_is_repeatable(recipe) for recipe in schema.tensors_of(case))


def _is_repeatable(recipe: schema.Tensor) -> bool:
    return (
        isinstance(recipe.fill, schema.Normal | schema.Uniform | schema.Integers)
        and operators.torch_dtype(recipe.dtype) in _REPEATABLE
        and math.prod(recipe.shape) > 1
    )


def _sorted_positions(case: schema.Case) -> list[int]:
    """Positions of the tensors that hold sorted rows, if no other argument says how they are sorted."""
    named = operators.named_arguments(case.operator, case.args, case.kwargs)
    if any(name == _ORDER_ARGUMENT and isinstance(argument, schema.Tensor) for name, argument in named):
        return []
    found, place = [], 0
    for name, argument in named:
        if name in _SORTED_ARGUMENTS and isinstance(argument, schema.Tensor) and _is_sorted(argument):
            found.append(place)
        place += operators.tensor_count(argument)
    return found


def _is_sorted(recipe: schema.Tensor) -> bool:
    return isinstance(recipe.fill, schema.SortedIntegers) and recipe.shape != () and recipe.shape[-1] > 1


def _reduce_to_levels(target: torch.Tensor, rng: PlanRng, infinite: bool) -> None:
    """Split the values into ranges with about equally many elements; replace each element by its range's level."""
    sample = target[places_in(target, min(_SAMPLED_ELEMENTS, target.numel()), rng)]
    sample = sample[torch.isfinite(sample)].sort().values
    if len(sample) < 2:
        return
    count = min(rng.structure.choice(_LEVEL_COUNTS), max(2, len(sample) // 2))
    ends = sample[[len(sample) * part // count for part in range(1, count)]]
    levels = sample[torch.randperm(len(sample), generator=rng.values)[:count].to(sample.device)]
    if infinite:
        levels[levels.argmin()], levels[levels.argmax()] = -math.inf, math.inf
    target.copy_(levels[torch.bucketize(target.contiguous(), ends, right=True)])


def _repeat_rows(view: torch.Tensor, rng: PlanRng, infinite: bool) -> None:
    """Fill some rows with a single value, perhaps infinite, and overwrite some with copies of other rows."""
    if view.dim() < 2 or len(view) < 4:
        return
    few = min(max(1, len(view) // _ROWS_EVERY), _MOST_ROWS)
    chosen = rng.structure.sample(range(len(view)), 3 * few)
    for flat, row, other in zip(chosen[:few], chosen[few : 2 * few], chosen[2 * few :], strict=True):
        view[flat] = rng.structure.choice((math.inf, -math.inf)) if infinite else view[flat].flatten()[0].clone()
        view[row] = view[other].clone()


def _make_runs(view: torch.Tensor, rng: PlanRng) -> None:
    """Make runs of equal values: each element becomes the first of its run, so that rows stay sorted."""
    length = view.shape[-1]
    count = rng.structure.randint(1, max(1, length // 2))
    starts = torch.tensor([0, *sorted(rng.structure.sample(range(1, length), count))])
    taken = starts[torch.bucketize(torch.arange(length), starts, right=True) - 1]
    view.copy_(view[..., taken.to(view.device)].clone())


def _copy_from_sorted(tensor: DrawnTensor, sorted_positions: torch.Tensor, rng: PlanRng) -> None:
    """Replace half of the searched values by values of the sorted row, as far as the recipe allows them."""
    view, fill = tensor.view, tensor.recipe.fill
    rows_match = sorted_positions.dim() == 1 or sorted_positions.shape[:-1] == view.shape[:-1]
    if not (_is_repeatable(tensor.recipe) and rows_match and view.dim()) or overlaps(tensor.recipe):
        return
    taken = rng.below(sorted_positions.shape[-1], view.shape[-1]).to(view.device)
    found = sorted_positions[..., taken].to(view.dtype).expand(view.shape)
    replaced = (rng.below(2, view.shape[-1]) == 0).to(view.device).expand(view.shape)
    if isinstance(fill, schema.Uniform | schema.Integers):
        replaced = replaced & (found >= fill.low) & (found < fill.high)
    view.copy_(torch.where(replaced, found, view))
