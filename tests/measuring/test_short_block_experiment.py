"""The design of the experiment on the CPU: pairs in bursts, alternation, and when it ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from torchstone.measuring.long_block_experiment import Inspections, Times
from torchstone.measuring.short_block_experiment import (
    PAIRS_IN_BURST,
    SHORT_BLOCK_PLANS,
    ExclusiveUse,
    ShortBlockPlan,
    calls_in_block,
    reference_call_ns,
    short_confirmations,
    short_rounds,
    some_pairs,
)
from torchstone.schema import Block, Effort, Party, Way

PLAN = ShortBlockPlan(12, 40, 10.0, 0.05, 20, 10.0)


class Steady:
    """A party that takes the same time for each call, and writes down what it is asked."""

    way: Way = "called"

    def __init__(self, name: str, log: list[str], call_ns: Callable[[], float] | float) -> None:
        self.name, self._log, self._call_ns = name, log, call_ns

    def prepare(self, lengths: tuple[int, ...]) -> None:
        self._log.append(f"{self.name} prepare {len(lengths)}")

    def run(self, calls: int) -> Times:
        self._log.append(self.name)
        call_ns = self._call_ns() if callable(self._call_ns) else self._call_ns
        return Times(round(200_000 + calls * call_ns), round(calls * call_ns))

    def settle(self) -> None:
        self._log.append(f"{self.name} settle")


def parties(
    log: list[str], candidate: Callable[[], float] | float = 1e5, reference: float = 1e5
) -> dict[Party, Steady]:
    return {
        "candidate": Steady("candidate", log, candidate),
        "reference": Steady("reference", log, reference),
        "shim": Steady("shim", log, 0.0),
    }


def test_candidate_and_reference_alternate_all_through_a_burst() -> None:
    log: list[str] = []
    short_rounds(parties(log), 4, PLAN, random.Random(1))
    assert "candidate settle" in log
    for burst in " ".join(log).split("shim prepare 4")[1:]:
        order = [word for word in burst.split("candidate settle")[0].split() if word in ("candidate", "reference")]
        assert len(order) == 2 * PAIRS_IN_BURST
        assert all(one != other for one, other in pairwise(order))


def test_either_party_begins() -> None:
    log: list[str] = []
    short_rounds(parties(log), 4, ShortBlockPlan(40, 40, 10.0, 0.001, 0, 0.0), random.Random(3))
    begins = {
        burst.split()[0] for burst in " ".join(each for each in log if each != "shim").split("shim prepare 4")[1:]
    }
    assert begins == {"candidate", "reference"}


def test_every_pair_has_a_block_of_each_party_and_a_number_of_its_own() -> None:
    blocks = short_rounds(parties([]), 4, PLAN, random.Random(1))
    numbers = sorted({block.round for block in blocks})
    assert numbers == list(range(len(numbers)))
    for number in numbers:
        assert {b.party for b in blocks if b.round == number} == {"candidate", "reference", "shim"}


def test_precise_pairs_are_no_more_than_the_least() -> None:
    assert len(short_rounds(parties([]), 4, PLAN, random.Random(1))) == 3 * PLAN.pairs


def test_what_excludes_one_by_little_gets_more_pairs_in_either_direction() -> None:
    for candidate in (1.12e5, 0.9e5):
        assert len(short_rounds(parties([], candidate), 4, PLAN, random.Random(1))) == 3 * PLAN.most_pairs


def test_what_is_much_slower_does_not() -> None:
    assert len(short_rounds(parties([], 3e5), 4, PLAN, random.Random(1))) == 3 * PLAN.pairs


def test_the_budget_ends_it() -> None:
    spent = ShortBlockPlan(12, 400, 0.0, 0.05, 20, 10.0)
    noise = random.Random(5)
    blocks = short_rounds(parties([], lambda: 1e5 * noise.uniform(0.1, 3)), 4, spent, random.Random(1))
    assert len(blocks) == 3 * spent.pairs


def test_inspections_come_within_bursts_and_leave_no_block_behind() -> None:
    seen: list[int] = []
    inspections = Inspections(PLAN.pairs // PAIRS_IN_BURST, lambda calls: lambda: seen.append(calls))
    blocks = short_rounds(parties([]), 4, PLAN, random.Random(1), inspections=inspections)
    assert seen == [4, 4]
    assert len(blocks) == 3 * PLAN.pairs


def test_blocks_are_as_long_as_the_plan_says() -> None:
    assert reference_call_ns(parties([], reference=1e5), 100) == pytest.approx(1e5)
    assert calls_in_block(parties([]), 100, PLAN, 100_000) == PLAN.block_ns // 100_000
    assert calls_in_block(parties([]), 2, PLAN, 100_000) == 2
    assert calls_in_block(parties([], 1e7, 1e7), 100, PLAN, 10_000_000) == 1


def test_what_a_block_costs_besides_its_calls_makes_no_warm_block_shorter() -> None:
    class SlowAtFirst(Steady):
        def run(self, calls: int) -> Times:
            return Times(round(100_000 + calls * 2e3), round(80_000 + calls * 2e3))

    found = {**parties([]), "reference": SlowAtFirst("reference", [], 0.0)}
    assert reference_call_ns(found, 100, warm=True) == pytest.approx(2e3)
    assert reference_call_ns(found, 100) > 5e3


def test_a_candidate_that_is_much_quicker_gets_longer_blocks_but_not_endless_ones() -> None:
    assert calls_in_block(parties([], 2e4), 1000, PLAN, 100_000) == PLAN.block_ns // 20_000
    assert calls_in_block(parties([], 10.0), 1000, PLAN, 100_000) == 8 * (PLAN.block_ns // 100_000)


def test_confirmations_are_added_while_they_are_wanted() -> None:
    blocks = [Block(7, "candidate", 4, 1, 1)]
    short_confirmations(parties([]), blocks, 4, PLAN, random.Random(1), lambda found: len(found) < 20)
    assert len(blocks) == 1 + 3 * 8
    assert min(block.round for block in blocks[1:]) == 8
    short_confirmations(parties([]), blocks, 4, PLAN, random.Random(1), lambda found: True)
    assert len(blocks) == 1 + 3 * 8 + 3 * PLAN.most_confirmations


def test_pairs_without_the_candidate_are_as_many_as_asked_for() -> None:
    blocks = some_pairs(parties([]), 4, 10, random.Random(1), first=50)
    assert sorted({block.round for block in blocks}) == list(range(50, 60))


def logged(log: list[str]) -> ExclusiveUse:
    """The device is had alone between these words."""

    @contextmanager
    def acquire() -> Iterator[None]:
        log.append("(")
        yield
        log.append(")")

    return ExclusiveUse(acquire, lambda: 0.0)


def runs_outside(log: list[str]) -> set[str]:
    """What happens while others may use the device."""
    outside, alone = set(), False
    for word in log:
        alone = {"(": True, ")": False}.get(word, alone)
        if not alone and word not in "()":
            outside.add(word.partition(" ")[2])
    return outside


def test_only_blocks_need_the_device_alone() -> None:
    log: list[str] = []
    short_rounds(parties(log), 4, PLAN, random.Random(1), alone=logged(log))
    assert runs_outside(log) == {f"prepare {PAIRS_IN_BURST}", "settle"}
    assert log.count("(") == -(-PLAN.pairs // PAIRS_IN_BURST)


def test_no_block_is_made_beside_others_in_confirmations_and_without_the_candidate() -> None:
    log: list[str] = []
    blocks = [Block(7, "candidate", 4, 1, 1)]
    short_confirmations(parties(log), blocks, 4, PLAN, random.Random(1), lambda found: True, logged(log))
    some_pairs(parties(log), 4, 10, random.Random(1), 0, logged(log))
    assert runs_outside(log) == {"prepare 1", f"prepare {PAIRS_IN_BURST}", "prepare 2", "settle"}


def test_waiting_for_the_device_takes_nothing_of_the_budget() -> None:
    plan = ShortBlockPlan(12, 40, 1e-9, 1e-9, 0, 0.0)
    uneven = lambda: random.random() * 1e5 + 1e5  # noqa: E731
    blocks = short_rounds(parties([], uneven), 4, plan, random.Random(1), alone=logged([]))
    assert len({block.round for block in blocks}) == plan.most_pairs


def test_only_the_candidate_decides_whether_blocks_are_longer() -> None:
    log: list[str] = []
    calls_in_block(parties(log), 100, PLAN, 100_000)
    assert (log.count("reference"), log.count("shim")) == (1, 1)


@pytest.mark.parametrize("effort", ["quick", "normal", "thorough"])
def test_every_effort_takes_enough_pairs_for_an_interval(effort: Effort) -> None:
    assert SHORT_BLOCK_PLANS[effort].pairs >= 12
    assert SHORT_BLOCK_PLANS[effort].pairs % PAIRS_IN_BURST == 0
