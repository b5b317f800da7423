"""Chooses, within a budget, which input plans (special values written into inputs) one job gets of those that apply.

A job is one kernel on one case. Some plans are always used. The others are used in rotation, so that a case and its
variants get all of them with few calls.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from torchstone.judging.effort_budget import CheckBudget
from torchstone.judging.plans.base import Plan, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.variant_tag import HIDDEN

_SMALL_CASE_ELEMENTS = 1 << 14
"""Most elements in a call's tensors of a small stated case."""
_LARGE_VARIANT_ELEMENTS = 1 << 10
"""Least elements of a large variant: its last elements lie after the last whole block of a kernel."""
_MOST_CACHED_CHOICES = 256
"""Most choices of plans in the cache: more than one job makes."""


class _Share(NamedTuple):
    """What a case or variant gets of the budget."""

    always: frozenset[When]
    """Plans that are always used. They count against the budget of a small case."""
    besides: frozenset[When]
    """Plans that are always used and count against no budget."""
    in_turn: int
    """How many of the other plans are used, in rotation: for a small case, the budget minus the ``always`` plans."""
    restarts: bool = False
    """Whether the rotation starts again. Otherwise it would begin with plans that another case of the operator left
    over, and a case with variants would get some plans twice."""


def schedule(facts: CaseFacts, plans: Sequence[Plan], seed: int, budget: CheckBudget) -> list[Plan]:
    """The plans of a job: all of them for small stated cases without variants; else some, in rotation."""
    plans = [plan for plan in plans if budget.all_checks or not plan.policy.thorough_only]
    in_every_call = [plan for plan in plans if plan.when(facts) is When.EVERY_CALL]
    others = [plan for plan in plans if plan not in in_every_call]
    random_ = random.Random(seed)
    if _is_small(facts) and not facts.whole_case.jitter and not _is_variant(facts):
        return in_every_call + random_.sample(others, len(others))
    return in_every_call + _chosen(_share(facts, others, random_, budget), facts, others, seed)


def _share(facts: CaseFacts, plans: Sequence[Plan], random_: random.Random, budget: CheckBudget) -> _Share:
    if _is_variant(facts):
        return _share_of_variant(facts, random_, budget)
    small = _is_small(facts)
    always = frozenset({When.FIRST} if small and not facts.model else {When.FIRST, When.LARGE})
    used = sum(plan.when(facts) in always for plan in plans)
    of_large = next((count for most, count in budget.plans_of_large if facts.elements <= most), budget.plans_of_largest)
    in_turn = budget.plans_of_small - used if small else of_large
    return _Share(always, frozenset({When.EVERY_CASE}), in_turn, restarts=facts.whole_case.jitter)


def _share_of_variant(facts: CaseFacts, random_: random.Random, budget: CheckBudget) -> _Share:
    if facts.elements >= _LARGE_VARIANT_ELEMENTS:
        return _Share(frozenset({When.EVERY_VARIANT, When.FIRST}), frozenset(), budget.plans_of_large_variant)
    return _Share(frozenset({When.EVERY_VARIANT}), frozenset(), random_.choice(budget.plans_of_variant))


def _chosen(share: _Share, facts: CaseFacts, plans: Sequence[Plan], seed: int) -> list[Plan]:
    always = [plan for plan in plans if plan.when(facts) in share.always]
    besides = [plan for plan in plans if plan.when(facts) in share.besides]
    others = [plan for plan in plans if plan not in always and plan not in besides]
    operator = facts.whole_case.operator
    return always + besides + _rotation.take(operator, others, share.in_turn, seed, restarts=share.restarts)


def _is_small(facts: CaseFacts) -> bool:
    return facts.elements <= _SMALL_CASE_ELEMENTS


def _is_variant(facts: CaseFacts) -> bool:
    return HIDDEN in facts.whole_case.tags


class _Rotation:
    """Rotation of plans for each operator: no plan is used twice before all that apply have been used.

    So a case and its variants get every plan with few calls, in an order that no kernel can foresee. The same seed
    gives the same plans again: a candidate that crashes on a plan must not get another one instead. Cases with the same
    seed do not share plans, since other plans may apply to them.
    """

    def __init__(self) -> None:
        self._queues: dict[str, list[Plan]] = {}
        self._choices: dict[tuple[str, int, tuple[Plan, ...], int], list[Plan]] = {}

    def take(self, operator: str, plans: Sequence[Plan], count: int, seed: int, *, restarts: bool) -> list[Plan]:
        key = operator, seed, tuple(plans), count
        if key not in self._choices:
            if len(self._choices) >= _MOST_CACHED_CHOICES:
                self._choices.pop(next(iter(self._choices)))
            if restarts:
                self._queues.pop(operator, None)
            self._choices[key] = self._next(operator, plans, count, random.Random(seed))
        return self._choices[key]

    def _next(self, operator: str, plans: Sequence[Plan], count: int, random_: random.Random) -> list[Plan]:
        queue = self._queues.setdefault(operator, [])
        found: list[Plan] = []
        while len(found) < min(count, len(plans)):
            if not any(plan in queue for plan in plans):
                queue += random_.sample(list(plans), len(plans))
            plan = next(plan for plan in queue if plan in plans)
            queue.remove(plan)
            found += [plan] if plan not in found else []
        return found


_rotation = _Rotation()
