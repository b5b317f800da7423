"""The order of an experiment: every party in every round, in both lengths, in a random order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from torchstone.measuring.long_block_experiment import (
    TIMING_PLANS,
    Inspections,
    Times,
    TimingPlan,
    Turn,
    block_lengths,
    reference_call_ns,
    rounds,
)
from torchstone.schema import Block, Party, Way


class Steady:
    """A contestant that takes the same time for every call, and some for starting."""

    way: Way = "called"

    def __init__(self, call_ns: int, start_ns: int = 50_000) -> None:
        self.call_ns, self.start_ns = call_ns, start_ns
        self.calls: list[int] = []

    def prepare(self, lengths: tuple[int, ...]) -> None:
        self.prepared = lengths

    def run(self, calls: int) -> Times:
        self.calls.append(calls)
        return Times(self.start_ns + calls * self.call_ns, calls * self.call_ns)


def never(blocks: Sequence[Block], half_width: float) -> bool:
    return False


def parties(call_ns: int) -> dict[Party, Steady]:
    return {"candidate": Steady(call_ns), "reference": Steady(2 * call_ns), "shim": Steady(call_ns // 2)}


def lengths(found: dict[Party, Steady], most: int, plan: TimingPlan) -> tuple[int, int]:
    return block_lengths(found, most, plan, reference_call_ns(found, most))


@given(call_ns=st.integers(100, 10**9), most=st.integers(1, 10_000))
def test_block_lengths_fit_and_differ(call_ns: int, most: int) -> None:
    for plan in TIMING_PLANS.values():
        short, long = lengths(parties(call_ns), most, plan)
        assert 1 <= short < long <= max(2, most)


def test_fast_kernels_get_long_blocks() -> None:
    plan = TIMING_PLANS["normal"]
    assert lengths(parties(1_000), 256, plan)[1] > lengths(parties(10_000_000), 256, plan)[1]


def test_a_candidate_that_is_much_quicker_than_the_reference_gets_long_blocks_too() -> None:
    plan, quick = TIMING_PLANS["normal"], Steady(2_000)
    found = {**parties(1_000_000), "candidate": quick}
    long = lengths(found, 4096, plan)[1]
    assert long >= plan.block_ns // 2_000
    assert {each.calls[-1] for each in found.values()} == {long}, "everybody has made such a block"


def test_a_candidate_does_not_choose_shorter_blocks() -> None:
    plan, slow = TIMING_PLANS["normal"], Steady(1_000_000)
    found = {**parties(2_000), "candidate": slow}
    assert lengths(found, 4096, plan)[1] == plan.block_ns // found["reference"].call_ns


def test_every_party_runs_both_lengths_in_every_round() -> None:
    plan = TimingPlan(rounds=5, budget_seconds=0.0, half_width=0.0, block_ns=1)
    blocks = rounds(parties(1000), (2, 16), plan, random.Random(1), never)
    counted = Counter((block.round, block.party, block.calls) for block in blocks)
    assert len(counted) == 5 * 3 * 2
    assert set(counted.values()) == {1}


def test_the_order_is_random_but_reproducible() -> None:
    plan = TimingPlan(rounds=8, budget_seconds=0.0, half_width=0.0, block_ns=1)

    def order(seed: int) -> list[tuple[str, int]]:
        return [(b.party, b.calls) for b in rounds(parties(1000), (2, 16), plan, random.Random(seed), never)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    by_round = {tuple(order(1)[start : start + 6]) for start in range(0, 48, 6)}
    assert len(by_round) > 1


def test_the_slope_of_steady_parties_is_their_time_per_call() -> None:
    plan = TimingPlan(rounds=3, budget_seconds=0.0, half_width=0.0, block_ns=1)
    blocks = rounds(parties(1000), (2, 16), plan, random.Random(1), never)
    for number in range(3):
        of_candidate = {b.calls: b.elapsed_ns for b in blocks if b.round == number and b.party == "candidate"}
        assert (of_candidate[16] - of_candidate[2]) / 14 == 1000


def test_rounds_go_on_until_the_budget_is_spent_but_not_for_ever() -> None:
    plan = TimingPlan(rounds=2, budget_seconds=60.0, half_width=0.0, block_ns=1, most_rounds=7)
    assert max(block.round for block in rounds(parties(1000), (1, 2), plan, random.Random(1), never)) == 6


def test_rounds_end_when_the_answer_is_precise_enough() -> None:
    plan = TimingPlan(rounds=5, budget_seconds=60.0, half_width=0.01, block_ns=1)
    asked: list[int] = []

    def enough(blocks: Sequence[Block], half_width: float) -> bool:
        assert half_width == 0.01
        asked.append(1 + blocks[-1].round)
        return len(asked) == 3

    blocks = rounds(parties(1000), (1, 2), plan, random.Random(1), enough)
    assert asked == [5, 9, 13]
    assert blocks[-1].round == 12


def test_inspections_are_spread_over_the_rounds_and_leave_no_block_behind() -> None:
    plan = TimingPlan(rounds=10, budget_seconds=60.0, half_width=0.0, block_ns=1, most_rounds=30)
    made: list[tuple[int, int]] = []
    candidates = parties(1000)

    def ready(calls: int) -> Turn:
        return lambda: made.append((len(candidates["candidate"].calls), calls))

    blocks = rounds(candidates, (2, 16), plan, random.Random(1), never, None, Inspections(10, ready))
    assert len(blocks) == 30 * 3 * 2
    assert len(made) == 6
    assert all(16 in {calls for _, calls in made[start : start + 2]} for start in (0, 2, 4))
    assert [before // 20 for before, _ in made[::2]] == [0, 1, 2]  # two for ten rounds of two blocks


def test_when_an_inspection_comes_is_not_a_matter_of_the_order() -> None:
    plan = TimingPlan(rounds=10, budget_seconds=0.0, half_width=0.0, block_ns=1)

    def places() -> tuple[int, ...]:
        found: list[int] = []
        candidates = parties(1000)
        inspections = Inspections(10, lambda calls: lambda: found.append(len(candidates["candidate"].calls)))
        rounds(candidates, (2, 16), plan, random.Random(1), never, None, inspections)
        return tuple(found)

    assert len({places() for _ in range(20)}) > 1


def test_what_cannot_be_inspected_is_not() -> None:
    plan = TimingPlan(rounds=5, budget_seconds=0.0, half_width=0.0, block_ns=1)
    blocks = rounds(parties(1000), (2, 16), plan, random.Random(1), never, None, Inspections(5, lambda calls: None))
    assert len(blocks) == 5 * 3 * 2
