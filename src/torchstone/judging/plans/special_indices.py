"""Input plans (special values written into test inputs): negative indices, and the index that a call ignores.

Drawn indices are never negative. The second plan writes the index that an argument of the call names
(``ignore_index``, ``padding_idx``).
"""

from __future__ import annotations

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.judging.plans.base import Plan, Policy, When
from torchstone.judging.plans.case_facts import CaseFacts, may_be_index
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in, plant_where

_EVERY_NEGATIVE = 4
_EVERY_MARKED = 16
"""One index in this many is planted."""


class NegativeIndices(Plan):
    """Negative indices, which count from the end.

    Some operators accept them on the CPU and write out of bounds on CUDA (``embedding_renorm_``). So on a GPU only
    operators that promise to accept negative indices get them.
    """

    name = "negative"
    phrase = "indices included negative ones, which count from the end"
    policy = Policy(When.LARGE, gradients=True, factorizations=True, may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        return any(map(may_be_index, facts.filled))

    def is_safe_on_gpu(self, facts: CaseFacts) -> bool:
        return facts.traits.counts_back

    def needs_trial(self, call: DrawnCall, on_host: bool) -> bool:
        return not operators.traits(call.case.operator).counts_back

    def equivalent_storages(self, call: DrawnCall) -> list[torch.Tensor]:
        """Storages with the non-negative indices that the negative ones stand for."""
        storages = [tensor.storage.clone() for tensor in call.tensors]
        for tensor, storage in zip(call.tensors, storages, strict=True):
            if isinstance(tensor.recipe.fill, schema.Integers) and may_be_index(tensor.recipe):
                # The storage is changed, not the view: an expanded view cannot be written to.
                storage.copy_(torch.where(storage < 0, storage + tensor.recipe.fill.high, storage))
        return storages

    def allowed_in_timed_blocks(self, facts: CaseFacts, on_host: bool) -> bool:
        return on_host or facts.traits.counts_back

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in call.tensors:
            fill = tensor.recipe.fill
            if tensor.view.numel() and isinstance(fill, schema.Integers) and may_be_index(tensor.recipe):
                target = elements(tensor)
                places = places_in(target, count_of(target, _EVERY_NEGATIVE), rng)
                target[places] = target[places] - fill.high


class MarkedIndices(Plan):
    """The index that a scalar argument names: ``ignore_index`` or ``padding_idx``."""

    name = "marked"
    phrase = "indices included the one that the call ignores or pads with"
    policy = Policy(When.LARGE, gradients=True, factorizations=True, may_be_refused=True)

    def applies(self, facts: CaseFacts) -> bool:
        return any(map(may_be_index, facts.filled)) and bool(_index_scalars(facts.case))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        index_scalars = _index_scalars(call.case)
        plant_where(call, rng, lambda rng, _, count: rng.chosen(index_scalars, count), _EVERY_MARKED, may_be_index)


def _index_scalars(case: schema.Case) -> list[float]:
    """Values of the integer arguments, defaults included, whose names contain ``index`` or ``idx``."""
    declared = operators.resolve(case.operator)._schema.arguments
    given: dict[str, object] = {a.name: a.default_value for a in declared if a.has_default_value()}
    named = {a.name: value for a, value in zip(declared, case.args, strict=False)} | case.kwargs
    given |= {name: value.value if isinstance(value, schema.Scalar) else None for name, value in named.items()}
    return [float(v) for name, v in given.items() if ("index" in name or "idx" in name) and type(v) is int]
