"""How many calls a block has, and how many blocks there are."""

from __future__ import annotations

from torchstone.harness.alternating_blocks import LEAST_CALLS, MOST_CALLS, WANTED_ROUNDS, Wanted, plan_blocks


def wanted(call_ms: float, iterations: int | None = None, budget_ms: float = 10_500.0) -> Wanted:
    return Wanted(iterations, min_run_time_ms=100.0, budget_ms=budget_ms, call_ms=call_ms, block_ms=1.0)


def test_short_calls_make_many_blocks_of_a_millisecond() -> None:
    (plan,) = plan_blocks([wanted(0.02)])
    assert len(plan) >= WANTED_ROUNDS
    assert plan[0] == 50
    assert sum(plan) * 0.02 >= 100.0


def test_tiny_calls_are_not_more_than_can_be_kept() -> None:
    (plan,) = plan_blocks([wanted(0.0005)])
    assert sum(plan) <= MOST_CALLS + len(plan)
    assert len(plan) >= WANTED_ROUNDS


def test_calls_of_a_few_milliseconds_are_a_block_each() -> None:
    (plan,) = plan_blocks([wanted(5.0)])
    assert plan == [1] * LEAST_CALLS


def test_long_calls_are_as_many_as_the_budget_allows() -> None:
    (plan,) = plan_blocks([wanted(1000.0)])
    assert plan == [1] * 10
    assert plan_blocks([wanted(60_000.0)]) == [[1]]


def test_both_sides_take_the_same_number_of_turns() -> None:
    slow, quick = plan_blocks([wanted(400.0), wanted(0.1)])
    assert len(slow) == len(quick) == 26
    assert sum(quick) >= LEAST_CALLS
    assert quick[0] * 0.1 >= 1.0


def test_a_given_number_of_calls_is_kept_to_exactly() -> None:
    for iterations in (1, 2, 7, 25, 100, 999):
        for call_ms in (0.001, 0.3, 50.0):
            (plan,) = plan_blocks([wanted(call_ms, iterations)])
            assert sum(plan) == iterations
            assert min(plan) >= 1
            assert max(plan) - min(plan) <= 1
    given, free = plan_blocks([wanted(0.1, 30), wanted(0.1)])
    assert sum(given) == 30
    assert len(free) == len(given) == 20
    assert sum(free) >= 1000
