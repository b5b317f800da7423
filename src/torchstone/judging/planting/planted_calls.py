"""Makes calls with planted values (special values that an input plan writes), and keeps those that torch accepts.

An operator may refuse a planted value. So a planted call is made only if torch accepts it. Negative indices must also
give the result of the indices that they stand for. On a GPU a value that an operator refuses may end the process. Such
a call is tried on the CPU first. :mod:`torchstone.judging.compare.reference_trust` decides whether a different result
is wrong.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from dataclasses import replace

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, draw_calls
from torchstone.calls.reference_calls import Evaluation, Evaluator, ReferenceFailure, is_continuous
from torchstone.judging.effort_budget import BUDGETS
from torchstone.judging.plans.base import Plan
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.catalogue import PLANS, plan_of
from torchstone.judging.planting.schedule import schedule
from torchstone.judging.planting.tiny_calls import TinyCall
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected
from torchstone.judging.reference.unused_randomness import draws_nothing
from torchstone.judging.same_values import same

_HOST = torch.device("cpu")
_MOST_TRIAL_ELEMENTS = 1 << 18
"""Most elements of a call that is tried on the CPU first. Larger calls that need a trial are left out."""
_MOST_PLANTED_CALLS = 8
"""Most planted calls in a checked block that looks like a timed one."""
_MOST_PLANTED_ELEMENTS = 1 << 19
"""Most elements of all planted calls of such a block together."""


def facts_of(case: schema.Case, like: Expected) -> CaseFacts:
    """The facts that plans need. ``like``: a call with its expected result, of this case or of its stated case."""
    return CaseFacts(case, tells_positions=_tells_positions(like), like=like)


def planted_calls(usual: Expected, seed: int, *, non_finite: bool = False) -> list[Expected]:
    """Planted calls of a case that torch accepts, with their expected results; perhaps none.

    ``usual`` is any other call of the case. ``non_finite``: also a call with NaN and infinities, if the operator is
    pointwise.
    """
    planting = Planting(usual.batch.reference, usual, seed, non_finite=non_finite)
    usual.batch.reference.precompute(planting.calls)
    return planting.expected_results()


class Planting:
    """Planted calls of a case, drawn but not yet evaluated by torch."""

    def __init__(
        self, reference: Reference, like: Expected, seed: int, *, non_finite: bool = False, most: int | None = None
    ) -> None:
        """``like``: a call of the case, or of the stated case that it is a variant of. It shows the kinds of results.

        If results are random, ``like`` must be a call of the case itself. ``non_finite``: as :func:`planted_calls`.
        ``most``: most plans that are used, a random choice of those that apply.
        """
        self._reference = reference
        chosen = _chosen(reference, like, seed, non_finite)
        if most is not None and len(chosen) > most:
            chosen = random.Random(seed).sample(chosen, most)
        self._tiny = [TinyCall(reference, seed) for plan in chosen if plan.makes_own_call]
        plans = [plan for plan in chosen if not plan.makes_own_call]
        drawn = draw_calls(reference.case, seed, len(plans), reference.device) if plans else []
        planted = [(plan, plan.plant(call)) for call, plan in zip(drawn, plans, strict=True)]
        self._planted = [call for plan, call in planted if _passes_trial(reference, plan, call)]

    @property
    def calls(self) -> list[DrawnCall]:
        """The calls that torch has to evaluate."""
        return [*self._planted, *(call for tiny in self._tiny for call in tiny.calls)]

    def expected_results(self) -> list[Expected]:
        """The calls that torch accepts, with their expected results."""
        return _expected_results(self._reference, self._planted) + [
            each for tiny in self._tiny for each in tiny.expected_results()
        ]


def _chosen(reference: Reference, like: Expected, seed: int, non_finite: bool) -> list[Plan]:
    if reference.undefined:
        return []
    facts = facts_of(reference.case, like)
    plans = [plan for plan in PLANS.applying(facts) if reference.runs_on_host or plan.is_safe_on_gpu(facts)]
    chosen = schedule(facts, plans, seed, BUDGETS[reference.effort]) + (PLANS.on_request(facts) if non_finite else [])
    for_random = PLANS.for_random_results(facts)
    if (chosen or for_random) and reference.random_results is not None and not draws_nothing(like):
        return for_random
    return chosen


def plans_among_timed(usual: Expected, seed: int) -> list[Plan]:
    """Plans for checked blocks that look like timed ones: those whose values torch accepts in every element.

    In these blocks the CPU does not try a call first, and no call can be left out.
    """
    facts = facts_of(usual.call.case, usual)
    taken = [plan_of(expected.call) for expected in planted_calls(usual, seed)]
    on_host = usual.batch.reference.runs_on_host
    return [plan for plan in taken if plan is not None and plan.allowed_in_timed_blocks(facts, on_host)]


def plant_some(calls: Sequence[DrawnCall], plans: Sequence[Plan]) -> list[DrawnCall]:
    """The calls, with values planted into a few that are chosen by a secret random generator.

    Only a few, because comparing a planted call may take long.
    """
    secret_random, found = secrets.SystemRandom(), list(calls)
    planted_count = max(1, min(_MOST_PLANTED_CALLS, _MOST_PLANTED_ELEMENTS // max(1, _elements(calls[0].case))))
    for place in secret_random.sample(range(len(found)), min(planted_count, len(found))):
        found[place] = secret_random.choice(plans).plant(found[place])
    return found


def _expected_results(reference: Reference, calls: Sequence[DrawnCall]) -> list[Expected]:
    """The expected results of these calls, without the calls that torch refuses."""
    try:
        found = reference.expect_many(calls)
        return [replace(each, with_bounds=_is_compared_in_full(each.call)) for each in found]
    except ReferenceFailure:
        return [found for call in calls for found in _expected_results(reference, [call])] if len(calls) > 1 else []


def _is_compared_in_full(call: DrawnCall) -> bool:
    """Whether the plan requires a full comparison: the tolerance for usual values is too wide for its small values."""
    plan = plan_of(call)
    return plan is not None and plan.policy.keeps_digits


def _elements(case: schema.Case) -> int:
    return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))


def _tells_positions(usual: Expected) -> bool:
    """Whether results are positions, as of ``argmax``: torch often does not define which of equal values they mean.

    The same holds for several NaN. Integers that a model counts in its buffers are not positions.
    """
    operator = usual.call.case.operator
    return operators.traits(operator).leaves_ties_open or any(
        not is_continuous(tensor.dtype) and tensor.dtype is not torch.bool
        for place, tensor in usual.native.items()
        if place.kind == "output" or not schema.is_model(operator)
    )


def _passes_trial(reference: Reference, plan: Plan, call: DrawnCall) -> bool:
    """Whether the call needs no trial on the CPU, or torch accepts it there and gives the result the plan requires."""
    if not plan.needs_trial(call, reference.runs_on_host):
        return True
    if _elements(call.case) > _MOST_TRIAL_ELEMENTS:
        return False
    evaluator, other = Evaluator(call.case, _HOST), plan.equivalent_storages(call)
    try:
        found = evaluator.native_on(_on_host([tensor.storage for tensor in call.tensors]), 1)
        required = found if other is None else evaluator.native_on(_on_host(other), 1)
    except ReferenceFailure:
        return False
    return _same_results(found, required)


def _on_host(storages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [storage.to(_HOST, copy=True).unsqueeze(0) for storage in storages]


def _same_results(one: Evaluation | None, other: Evaluation | None) -> bool:
    """Whether the returned tensors are the same.

    Arguments that are written to are not compared: they may be the indices themselves.
    """
    if one is None or other is None:
        return False
    places = [place for place in one.tensors if place.kind == "output"]
    return all(same(one.tensors[place], other.tensors[place]) for place in places)
