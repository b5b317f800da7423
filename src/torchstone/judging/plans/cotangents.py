"""Input plans (special values written into test inputs): cotangents (incoming gradients) of 0, and large ones.

Drawn cotangents are of the order of 1, and hardly ever 0. In training they are 0 at padded, masked or ignored
elements. A loss that is scaled for float16 makes them up to 65 536 times as large. Gradients are linear in cotangents,
so torch's own result is always reliable.
"""

from __future__ import annotations

import torch

from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.forward_part import cotangents
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in

_EVERY = 4
"""One element in this many becomes 0."""
_ALL_BUT_ONE_PROBABILITY = 0.2
"""Probability that all elements but one become 0."""
_EXPONENTS = {torch.float16: (4, 8)}
"""Range of the exponents of two by which cotangents are multiplied; smaller for float16, whose sums must be finite."""
_USUAL_EXPONENTS = (10, 16)


class ZeroCotangents(Plan):
    """Some elements of the cotangents are 0."""

    name = "unused"
    phrase = "cotangents included 0, in some rows everywhere"
    policy = Policy(When.EVERY_CASE, Positions.IRRELEVANT, gradients=True, factorizations=True, whole_call=True)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.gradient and bool(cotangents(facts.whole_case))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in _floating_cotangents(call):
            _zero_some(tensor, rng)


class LargeCotangents(Plan):
    """All cotangents times a power of two."""

    name = "loud"
    phrase = "cotangents were multiplied by a large power of two, as a scaled loss has them"
    policy = ZeroCotangents.policy

    def applies(self, facts: CaseFacts) -> bool:
        return facts.gradient and bool(cotangents(facts.whole_case))

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for tensor in _floating_cotangents(call):
            _enlarge(tensor, rng)


def _floating_cotangents(call: DrawnCall) -> list[DrawnTensor]:
    found = call.tensors[: cotangents(call.case)]
    return [tensor for tensor in found if tensor.view.numel() and tensor.view.dtype.is_floating_point]


def _zero_some(tensor: DrawnTensor, rng: PlanRng) -> None:
    """Set some elements and some whole slices to 0, or all elements but one."""
    target = elements(tensor)
    if rng.structure.random() < _ALL_BUT_ONE_PROBABILITY:
        place = places_in(target, 1, rng)
        kept = target[place].clone()
        target.zero_()
        target[place] = kept
        return
    target[places_in(target, count_of(target, _EVERY), rng)] = 0.0
    if tensor.view.dim() > 1 and not overlaps(tensor.recipe):
        for dimension in {0, rng.structure.randrange(tensor.view.dim())}:
            size = tensor.view.shape[dimension]
            chosen = torch.tensor(rng.structure.sample(range(size), size // 4 or int(size > 1)), dtype=torch.int64)
            tensor.view.index_fill_(dimension, chosen.to(tensor.view.device), 0.0)


def _enlarge(tensor: DrawnTensor, rng: PlanRng) -> None:
    least, most = _EXPONENTS.get(tensor.view.dtype, _USUAL_EXPONENTS)
    elements(tensor).mul_(2.0 ** rng.structure.randint(least, most))
