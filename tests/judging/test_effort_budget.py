"""The budget of checks: more effort never checks less, and what finds nothing alone is for `thorough`."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
import torch

from judging.cases import case, tensor
from torchstone.judging import BUDGETS, Mismatch, Reference, compare_many, draw_call, hidden_cases, planted_calls
from torchstone.judging.effort_budget import CheckBudget
from torchstone.judging.plans import PLANS
from torchstone.judging.planting.planted_calls import facts_of
from torchstone.judging.planting.schedule import schedule
from torchstone.judging.variants import pool, sizes
from torchstone.schema import Effort

CPU = torch.device("cpu")
SMALL = case("aten.softmax.int", tensor(4, 16), 1)
THOROUGH_ONLY = {plan.name for plan in PLANS if plan.policy.thorough_only} | {"scaled"}
EFFORTS: tuple[Effort, ...] = ("quick", "normal", "thorough")


def _amounts(budget: CheckBudget) -> list[float]:
    found: list[float] = []
    for each in fields(budget):
        value = getattr(budget, each.name)
        found += [sum(value) / len(value)] if each.name == "plans_of_variant" else []
        found += [sum(count for _, count in value)] if each.name == "plans_of_large" else []
        found += [float(value)] if isinstance(value, int) else []
    return found


def test_more_effort_never_checks_less() -> None:
    quick, normal, thorough = (_amounts(BUDGETS[effort]) for effort in EFFORTS)
    assert all(one <= two <= three for one, two, three in zip(quick, normal, thorough, strict=True))
    assert quick != normal != thorough


@pytest.mark.parametrize("effort", EFFORTS)
def test_plans_that_find_nothing_alone_come_at_thorough_only(effort: Effort) -> None:
    usual = Reference(SMALL, CPU, effort=effort).expect(draw_call(SMALL, 1, CPU))
    facts = facts_of(SMALL, usual)
    applying = PLANS.applying(facts)
    assert {plan.name for plan in applying} >= THOROUGH_ONLY
    seen = {plan.name for seed in range(20) for plan in schedule(facts, applying, seed, BUDGETS[effort])}
    assert seen & THOROUGH_ONLY == (THOROUGH_ONLY if effort == "thorough" else set())
    planted = {each.call.planted for seed in range(5) for each in planted_calls(usual, seed)}
    assert ("hundreds" in planted) == (effort == "thorough")


def test_a_job_with_few_variants_gets_one_of_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[sizes.Kind] = []
    one = pool.VariantPool._variant_of_kind

    def seen(self: pool.VariantPool, *given: object) -> object:
        found = one(self, *given)  # type: ignore[arg-type]
        kinds.extend([given[1]] if found is not None else [])  # type: ignore[list-item]
        return found

    monkeypatch.setattr(pool.VariantPool, "_variant_of_kind", seen)
    wanted = case("aten.relu.default", tensor(12, 34))
    for seed in range(5):
        kinds.clear()
        assert len(hidden_cases(wanted, len(sizes.GROUPS), random.Random(seed))) == len(sizes.GROUPS)
        assert [sum(kind in group for kind in kinds) for group in sizes.GROUPS] == [1] * len(sizes.GROUPS)


def test_every_kind_of_variant_is_in_one_group() -> None:
    grouped = [kind for group in sizes.GROUPS for kind in group]
    assert sorted(grouped, key=repr) == sorted((*sizes.ALWAYS, *sizes.KINDS), key=repr)


def test_a_variant_is_checked_with_the_effort_of_its_stated_case() -> None:
    stated = Reference(SMALL, CPU, effort="quick")
    assert Reference(case("aten.softmax.int", tensor(3, 5), 1), CPU, stated=stated).effort == "quick"


@pytest.mark.parametrize("effort", EFFORTS)
def test_draws_are_searched_for_reordered_old_ones_at_thorough_only(effort: Effort) -> None:
    """A kernel that hands out one draw in other orders: neither its neighbours nor its places are those of before."""
    wanted = case("aten.rand_like.default", tensor(4096))
    reference = Reference(wanted, CPU, effort=effort)
    old = torch.rand(4096)
    calls = [draw_call(wanted, seed, CPU) for seed in range(6)]
    expected = reference.expect_many(calls, with_bounds=True)
    answers = [[old[order]] for order in _orders_without_common_places(len(calls), 4096)]
    found = compare_many(expected, answers, [each.inputs_after for each in expected])
    assert isinstance(found, Mismatch) == (effort == "thorough")


def _orders_without_common_places(count: int, length: int) -> list[torch.Tensor]:
    """Values that come to the same place again would be found at every effort."""
    found: list[torch.Tensor] = []
    while len(found) < count:
        order = torch.randperm(length)
        if not any((order == other).any() for other in found):
            found.append(order)
    return found
