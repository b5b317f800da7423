"""Input plan (special values written into test inputs): NaN and infinities for pointwise operators, in an extra call.

Elements of such operators do not affect one another. ``x * (x > 0)`` gives NaN at negative infinity, where relu gives
0, and ``where(x > 0, x, 0)`` gives 0 at NaN. A kernel must give torch's result where torch agrees with float64
(:mod:`torchstone.judging.compare.reference_trust`). Where torch gives NaN for an infinity, any result is accepted.

Each stated case (as its suite gives it) gets one more call with such inputs, unless the run has
``--non-finite ignore``. Hidden variants get none.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.calls.reference_calls import ResultPosition
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import FLOATS, CaseFacts, is_unbounded
from torchstone.judging.plans.plan_randomness import PlanRng, count_of, elements, places_in

_VALUES = (math.nan, math.inf, -math.inf)
_EVERY = 16
"""One element in this many, and at least one NaN, inf and -inf where there is room."""


class NonFiniteInputs(Plan):
    """NaN, inf and -inf in every tensor without a stated range.

    A tensor of one element does not change beside larger ones, because all of their elements are combined with it.
    """

    name = "non-finite inputs"
    phrase = "non-finite inputs: NaN and infinities; --non-finite ignore leaves them out"
    policy = Policy(
        When.ON_REQUEST, Positions.IRRELEVANT, gradients=True, models=True, factorizations=True, strict_non_finite=True
    )

    def applies(self, facts: CaseFacts) -> bool:
        """Whether the operator is pointwise, and takes and returns floats or booleans.

        C++ and torch do not define the conversion of NaN or infinity to integers, or to a float8 without infinities.
        """
        traits = operators.traits(facts.whole_case.operator)
        if not traits.pointwise or traits.undecided_non_finite or traits.has_float_degree:
            return False
        return all(dtype in (*FLOATS, torch.bool) for dtype in facts.result_dtypes) and facts.has_unbounded

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        return _undetermined(call, place, native)

    def excuses_numbers(self, call: DrawnCall) -> bool:
        return True

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        tensors = [tensor for tensor in call.tensors if tensor.view.numel() and is_unbounded(tensor.recipe)]
        most = max(tensor.view.numel() for tensor in tensors)
        for tensor in tensors:
            if tensor.view.numel() > 1 or most == 1:
                _plant(tensor, rng)


def _plant(tensor: DrawnTensor, rng: PlanRng) -> None:
    target = elements(tensor)
    count = min(target.numel(), max(len(_VALUES), count_of(target, _EVERY)))
    kinds = torch.arange(count).add(rng.structure.randrange(len(_VALUES))).remainder(len(_VALUES))
    values = torch.tensor(_VALUES, dtype=torch.float64)[kinds]
    target[places_in(target, count, rng)] = values.to(target.dtype).to(target.device)


def _undetermined(call: DrawnCall, place: ResultPosition, native: torch.Tensor) -> torch.Tensor:
    """Mask of the elements of a result for which any value is accepted.

    Torch gives NaN though no argument is NaN: another formula may give the limit. ``silu`` of negative infinity is NaN
    in torch, and 0 as a limit. Or several arguments of the element are not finite: C's ``hypot`` of NaN and infinity is
    infinity.
    """
    if place.kind == "argument":
        return torch.isnan(native) & ~torch.isnan(call.tensors[place.position].storage)
    views = [tensor.view for tensor in call.tensors if tensor.view.is_floating_point()]
    try:
        nans = sum(_expanded(torch.isnan(view), native) for view in views)
        infinities = sum(_expanded(torch.isinf(view), native) for view in views)
    except operator_errors():  # an argument does not broadcast to the result
        return torch.isnan(native)
    new_nan = torch.isnan(native) & (nans == 0)
    return new_nan | (nans + infinities > 1)


def _expanded(flags: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    return flags.to(torch.int8).expand(native.shape)
