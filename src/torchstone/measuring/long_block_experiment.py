"""Runs the timing experiment on a GPU: long blocks of candidate, reference and empty call (shim) in random order.

In each round, candidate, reference and shim run one long block and one single call each, in random order. So drift
(clocks, temperature, other programs) affects all of them. A long block minus the shim's gives the time per call: the
cost of a block besides its calls (command, wake-up, reply) is in both. Single calls show how a candidate performs with
one input at a time. The parties time their blocks themselves; the clock is read here only to keep to a budget.
``long_blocks.py`` computes the statistics.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from torchstone.schema import Block, Effort, Party, Way

METHOD = "blocks-less-shim"
_CALLS_IN_LONG_BLOCK = 8
"""Least calls of a long block, if there are enough distinct inputs. In shorter ones the block's own cost dominates."""
_CALLS_IN_PROBE = {False: 8, True: 64}
"""Calls for a first estimate of the time per call, by whether they are captured: captured calls are shorter."""
_MUCH_FASTER = 2
"""Factor over the reference from which the candidate, and not the reference, decides the number of calls in a block."""
_ROUNDS_BETWEEN_CONFIRMATION_TESTS = 5
"""Confirmation rounds after which it is tested whether more are needed."""
_ROUNDS_BETWEEN_PRECISION_TESTS = 4
"""Rounds after which it is tested whether the result is precise enough."""
_BUDGET_FACTOR_IF_UNSURE = 2.5
"""Factor on the budget of captured calls as long as their result has no usable precision at all."""
_INSPECTIONS_IN_STRETCH = 2
"""Inspections in a stretch of rounds: one long block, and one of a random length."""


class Times(NamedTuple):
    """Times of one block."""

    elapsed_ns: int
    """By the judge's clock."""
    claimed_ns: int
    """By the worker's."""
    revealing_ns: int = 0
    """Part of ``elapsed_ns`` in which the judge wrote arguments."""


class Contestant(Protocol):
    """A party of the experiment: candidate, reference or shim. The candidate gets new inputs in each call."""

    way: Way
    """How its calls are made."""

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Prepare the inputs of a round with blocks of these lengths, so that no pause comes between blocks.

        Otherwise a party whose inputs take long to draw would always be called after a pause, with cold caches.
        """
        ...

    def run(self, calls: int) -> Times:
        """Run one block of this many calls and return its times."""
        ...


Turn = Callable[[], Block | None]
"""One step of a round. It returns the block to add to the measurement, or None."""


class Inspections:
    """Schedules inspections: blocks with planted values among the timed ones. Results are compared, times are not used.

    A candidate must not be able to tell them from timed blocks, or it could be right only in these. So they are as long
    as timed ones, and come in random rounds: two in each stretch of rounds.
    """

    def __init__(self, stretch: int, ready: Callable[[int], Turn | None]) -> None:
        """``stretch``: rounds that have two inspections.

        ``ready``: prepares an inspection of that many calls; it returns None if no inspection is left or possible.
        """
        self._stretch, self._prepare = stretch, ready
        self._chance = secrets.SystemRandom()
        self._planned: list[Callable[[tuple[int, ...]], int] | None] = []

    def due(self, lengths: tuple[int, ...]) -> list[Turn]:
        """The inspection of the next round, or an empty list."""
        if not self._planned:
            self._planned = [max, self._chance.choice, *[None] * (self._stretch - _INSPECTIONS_IN_STRETCH)]
            self._chance.shuffle(self._planned)
        length = self._planned.pop()
        turn = None if length is None else self._prepare(length(lengths))
        return [] if turn is None else [turn]


class Watcher(Protocol):
    """Records for each round whether the machine was disturbed."""

    def begin(self) -> None:
        """Called before a round."""
        ...

    def end(self, number: int) -> None:
        """Called after the round with this number."""
        ...

    @property
    def disturbances(self) -> Sequence[object]:
        """One item for each disturbed round."""
        ...


class NoWatcher:
    """A watcher that records no disturbances."""

    disturbances: tuple[object, ...] = ()

    def begin(self) -> None: ...

    def end(self, number: int) -> None: ...


class TimingPlan(msgspec.Struct, frozen=True):
    """How much an effort measures."""

    rounds: int
    """Least number of rounds, so that there is an interval."""
    budget_seconds: float
    """More rounds are taken until the result is precise enough or this time, or the stage's deadline, has passed."""
    half_width: float
    """Precise enough: the speedup's 95 % interval has at most this relative half width."""
    block_ns: int
    """Wanted length of a long block. Too few distinct inputs make it shorter."""
    most_rounds: int = 128
    """Most rounds, even if there is time left."""
    most_confirmations: int = 100
    """Most further rounds of single calls, while these neither confirm nor refute a speedup."""
    confirming_seconds: float = math.inf
    """Time limit of these rounds. After it the speedup stays unconfirmed."""


TIMING_PLANS: dict[Effort, TimingPlan] = {
    "quick": TimingPlan(
        rounds=5,
        budget_seconds=0.15,
        half_width=0.05,
        block_ns=1_000_000,
        most_confirmations=40,
        confirming_seconds=5.0,
    ),
    "normal": TimingPlan(rounds=7, budget_seconds=0.5, half_width=0.02, block_ns=2_000_000),
    "thorough": TimingPlan(rounds=15, budget_seconds=4.0, half_width=0.005, block_ns=5_000_000, most_confirmations=400),
}


def reference_call_ns(contestants: Mapping[Party, Contestant], most_calls: int) -> int:
    """A first estimate of the reference's time per call: the time that further calls add to a block of one call."""
    reference = contestants["reference"]
    calls = min(_CALLS_IN_PROBE[reference.way == "captured"], max(2, most_calls))
    single, several = reference.run(1), reference.run(calls)
    return max(1, (_block_ns(several) - _block_ns(single)) // (calls - 1))


def block_lengths(
    contestants: Mapping[Party, Contestant], most_calls: int, plan: TimingPlan, call_ns: int
) -> tuple[int, int]:
    """Number of calls in a short block (one) and in a long one, from the reference's time per call.

    Long blocks have more calls if the candidate is much faster. Every party runs one long block here, so that memory
    for its results is not used for the first time in the first round.
    """
    long = long_block(call_ns, most_calls, plan)
    times = {party: contestant.run(long) for party, contestant in contestants.items()}
    candidates_ns = max(1, (_block_ns(times["candidate"]) - _block_ns(times["shim"])) // long)
    if candidates_ns * _MUCH_FASTER < call_ns:
        longer = long_block(candidates_ns, most_calls, plan)
        if longer > long:
            long = longer
            for contestant in contestants.values():
                contestant.run(long)
    return 1, long


def long_block(call_ns: int, most_calls: int, plan: TimingPlan) -> int:
    """How many calls of ``call_ns`` make a long block."""
    return int(min(max(2, most_calls), max(_CALLS_IN_LONG_BLOCK, plan.block_ns // call_ns)))


def _block_ns(times: Times) -> int:
    """The block's time, less the time in which the judge wrote arguments."""
    return times.elapsed_ns - times.revealing_ns


def rounds(
    contestants: Mapping[Party, Contestant],
    lengths: tuple[int, ...],
    plan: TimingPlan,
    order: random.Random,
    enough: Callable[[Sequence[Block], float], bool],
    watch: Watcher | None = None,
    inspections: Inspections | None = None,
) -> list[Block]:
    """Run rounds until ``enough`` finds the plan's precision in the blocks, or the plan's budget is spent.

    Significance is no reason to stop: it would make the interval far too narrow. For each disturbed round another one
    is run, if the budget allows. Disturbed rounds count too: a candidate can disturb the machine, and could otherwise
    choose which of its rounds count.
    """
    watch = watch or NoWatcher()
    began = time.monotonic()
    blocks: list[Block] = []
    for number in range(plan.most_rounds):
        spent = _is_spent(time.monotonic() - began, contestants, blocks, plan, enough)
        needed = plan.rounds + (0 if spent else min(len(watch.disturbances), plan.rounds))
        if number >= needed and (
            spent or ((number - needed) % _ROUNDS_BETWEEN_PRECISION_TESTS == 0 and enough(blocks, plan.half_width))
        ):
            break
        blocks.extend(_round(contestants, lengths, number, order, watch, inspections))
    return blocks


def _is_spent(
    seconds: float,
    contestants: Mapping[Party, Contestant],
    blocks: Sequence[Block],
    plan: TimingPlan,
    enough: Callable[[Sequence[Block], float], bool],
) -> bool:
    """Whether the budget is spent. For captured calls it grows while their result has no usable precision at all."""
    if seconds <= plan.budget_seconds or any(contestant.way != "captured" for contestant in contestants.values()):
        return seconds > plan.budget_seconds
    return seconds > _BUDGET_FACTOR_IF_UNSURE * plan.budget_seconds or enough(blocks, math.inf)


def some_rounds(
    contestants: Mapping[Party, Contestant],
    lengths: tuple[int, ...],
    count: int,
    order: random.Random,
    first: int,
    inspections: Inspections | None = None,
) -> list[Block]:
    """Run ``count`` rounds, numbered from ``first``, after one round that is not recorded."""
    for contestant in contestants.values():
        for calls in lengths:
            contestant.run(calls)
    numbers = range(first, first + count)
    return [b for number in numbers for b in _round(contestants, lengths, number, order, None, inspections)]


def confirmations(
    contestants: Mapping[Party, Contestant],
    blocks: list[Block],
    calls: int,
    plan: TimingPlan,
    order: random.Random,
    wanted: Callable[[Sequence[Block]], bool],
    inspections: Inspections | None = None,
) -> None:
    """Add rounds of single or chained calls to ``blocks`` while ``wanted`` returns True and the plan allows more."""
    first, until = 1 + max(block.round for block in blocks), time.monotonic() + plan.confirming_seconds
    for number in range(first, first + plan.most_confirmations):
        test_is_due = (number - first) % _ROUNDS_BETWEEN_CONFIRMATION_TESTS == 0
        if test_is_due and (not wanted(blocks) or time.monotonic() > until):
            return
        blocks.extend(_round(contestants, (calls,), number, order, None, inspections))


def _round(
    contestants: Mapping[Party, Contestant],
    lengths: tuple[int, ...],
    number: int,
    order: random.Random,
    watch: Watcher | None,
    inspections: Inspections | None,
) -> Iterator[Block]:
    """Run one block of each length by each party, and inspections that are due, in random order."""
    turns: list[Turn] = inspections.due(lengths) if inspections is not None else []
    for contestant in contestants.values():
        contestant.prepare(lengths)
    if watch is not None:
        watch.begin()
    turns += [partial(_block, contestants[party], party, calls, number) for party in contestants for calls in lengths]
    order.shuffle(turns)
    for turn in turns:
        block = turn()
        if block is not None:
            yield block
    if watch is not None:
        watch.end(number)


def _block(contestant: Contestant, party: Party, calls: int, number: int) -> Block:
    times = contestant.run(calls)
    return Block(number, party, calls, times.elapsed_ns, times.claimed_ns, contestant.way, times.revealing_ns)
