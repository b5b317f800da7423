"""Input plans (special values written into test inputs): scores masked with -inf, padding masks at row ends.

Some elements of a row, and all elements of a few rows, become -inf or the lowest number of the dtype. These are scores
of softmax, a loss or attention. A padding mask excludes the beginning or the end of rows, but never a whole row. So a
kernel that works block by block must handle a block in which everything is masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, overlaps
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.base import Plan, Policy, Positions, When, is_pointwise
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng, plant_into

_EVERY_MASKED = 8
"""One element in this many is masked."""
_ROWS_EVERY = 16
"""One row in this many is masked as a whole."""


class MaskedScores(Plan):
    """-inf, or the lowest number, for operators whose inputs users mask, and for losses over classes."""

    name = "masked"
    phrase = "inputs included masked elements: -inf, or the lowest number of the dtype"
    policy = Policy(When.EVERY_CASE, gradients=True)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.has_unbounded and (facts.traits.is_masked_in_use or has_classes(facts.case))

    def accepts_any_result(self, call: DrawnCall, native: Mapping[ResultPosition, torch.Tensor]) -> bool:
        """Any result is accepted if a masked class is the target, which makes the whole loss infinite or NaN."""
        finite = all(bool(torch.isfinite(each).all()) for each in native.values())
        return not finite and has_classes(call.case) and not is_pointwise(call.case)

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        return ~torch.isfinite(native)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        """Mask elements and rows; if rows are scores of classes, mask one element only.

        A masked target would make the loss of all rows infinite. If results are positions, there is at most one mask of
        each kind, and no whole row is masked.
        """
        for tensor in call.tensors:
            if not (tensor.view.numel() and isinstance(tensor.recipe.fill, schema.Normal)):
                continue
            if has_classes(call.case):
                plant_into(tensor, rng, lambda _rng, _tensor, _count: torch.tensor([-math.inf]), 1)
                return
            masks = (-math.inf, torch.finfo(tensor.view.dtype).min)
            plant_into(tensor, rng, lambda rng, _, count, masks=masks: rng.chosen(masks, count), _EVERY_MASKED)  # type: ignore[misc]
            if not rng.distinct and not overlaps(tensor.recipe):
                _mask_rows_and_runs(tensor.view, rng)


class PaddingMasks(Plan):
    """Padding in arguments named as masks. Not for pointwise operators."""

    name = "padded"
    phrase = "the mask excluded the beginning or the end of rows, as padding does"
    policy = Policy(When.EVERY_CASE, Positions.EXCLUDED)

    def applies(self, facts: CaseFacts) -> bool:
        return not facts.traits.pointwise and bool(_mask_positions(facts.case))

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        return ~torch.isfinite(native)

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for position in _mask_positions(call.case):
            view = call.tensors[position].view
            if view.dtype is torch.bool:
                _mask_runs(view, rng, False)
                view[..., -1] |= ~view.any(-1)
            else:
                _mask_runs(view, rng, -math.inf)


def has_classes(case: schema.Case) -> bool:
    """Whether rows are scores of classes, one of which is the target: the others may be masked."""
    declared = operators.traits(case.operator).arguments
    target = case.args[declared.index("target")] if "target" in declared[: len(case.args)] else None
    return isinstance(target, schema.Tensor) and isinstance(target.fill, schema.Integers)


def _mask_rows_and_runs(view: torch.Tensor, rng: PlanRng) -> None:
    """Mask a few whole rows, and the beginning or end of others."""
    if view.dim() > 1 and len(view) > 2:
        rows = rng.structure.sample(range(len(view)), max(1, len(view) // _ROWS_EVERY))
        view.index_fill_(0, torch.tensor(rows, device=view.device), -math.inf)
    if view.dim() and view.shape[-1] > 1:
        _mask_runs(view, rng, -math.inf)


def _mask_runs(view: torch.Tensor, rng: PlanRng, value: float) -> None:
    """Mask from half of a row to all but one element, at its beginning or its end, in about two of three rows."""
    size = view.shape[-1]
    rows = view.shape[:-1]
    count = math.prod(rows)
    lengths = (size // 2 + rng.below(size - size // 2, count)).to(view.device)
    kind = rng.below(3, count)
    if count > 1:
        kind[torch.tensor(rng.structure.sample(range(count), 2))] = torch.tensor([0, 1])
    kind = kind.to(view.device)
    columns = torch.arange(size, device=view.device)
    leading = (kind == 0)[:, None] & (columns < lengths[:, None])
    trailing = (kind == 1)[:, None] & (columns >= size - lengths[:, None])
    view.masked_fill_((leading | trailing).reshape(*rows, size), value)


def _mask_positions(case: schema.Case) -> list[int]:
    """Positions of the masks among the tensors of the case."""
    named = operators.named_arguments(case.operator, case.args, case.kwargs)
    owners = [name for name, argument in named for _ in range(operators.tensor_count(argument))]
    recipes = schema.tensors_of(case)
    return [at for at, name in enumerate(owners) if "mask" in name and _may_be_padded(recipes[at])]


def _may_be_padded(recipe: schema.Tensor) -> bool:
    """Whether a mask is added (floats: -inf masks) or boolean (False masks in attention), with rows to mask."""
    floating = isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point
    fits = floating or isinstance(recipe.fill, schema.Booleans)
    return fits and recipe.shape != () and recipe.shape[-1] > 1 and not overlaps(recipe) and math.prod(recipe.shape) > 0
