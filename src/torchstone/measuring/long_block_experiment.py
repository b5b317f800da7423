"""Runs the timing experiment on a GPU: long blocks of candidate, reference and empty call (shim) in random order.

Candidate, reference and shim are called in long blocks and in single calls, once per round, in a random order. So
drift (clocks, temperature, neighbours) affects all of them. A long block minus the shim's gives the time per call: the
cost of a block besides its calls (command, wake-up, reply) is in both. Single calls show what a candidate does with
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
"""Least calls of a long block, as far as there are distinct inputs: in shorter ones the block's own cost dominates."""
_CALLS_IN_PROBE = {False: 8, True: 64}
"""Calls for a first estimate of the time per call, by whether they are captured: captured calls are shorter."""
_MUCH_QUICKER = 2
"""Factor over the reference from which the candidate, and not the reference, decides the number of calls in a block."""
_CONFIRMATIONS_AT_A_TIME = 5
_ROUNDS_BETWEEN_LOOKS = 4
_PATIENCE = 2.5
_INSPECTIONS = 2
"""Inspected blocks in as many rounds as a plan has at least: one long block, one of any length."""


class Times(NamedTuple):
    """Times of one block."""

    elapsed_ns: int
    """By the judge's clock."""
    claimed_ns: int
    """By the worker's."""
    revealing_ns: int = 0
    """Part of ``elapsed_ns`` in which the judge itself was busy."""


class Contestant(Protocol):
    """A party: something that can be called a number of times in a row. The candidate gets new inputs each time."""

    way: Way
    """How its calls are made."""

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Get ready for a round with blocks of these lengths, so that nothing but the calls comes between blocks.

        Otherwise a party whose inputs take long to make would always be called after a pause, with cold caches.
        """
        ...

    def run(self, calls: int) -> Times:
        """How long all the calls took."""
        ...


Turn = Callable[[], Block | None]
"""Something to be done in a round, and what it adds to the measurement."""


class Inspections:
    """Blocks with planted values among the timed ones: they are verified, and their time is not used.

    A candidate must not be able to tell them from timed blocks, or it could be right only in these. So they are as long
    as timed ones, and come at random rounds, spread over all of them.
    """

    def __init__(self, stretch: int, ready: Callable[[int], Turn | None]) -> None:
        """``ready`` prepares such a block of that many calls; None: it is done already, or cannot be made."""
        self._stretch, self._ready = stretch, ready
        self._chance = secrets.SystemRandom()
        self._ahead: list[Callable[[tuple[int, ...]], int] | None] = []

    def due(self, lengths: tuple[int, ...]) -> list[Turn]:
        """Inspections among the turns of the next round."""
        if not self._ahead:
            self._ahead = [max, self._chance.choice, *[None] * (self._stretch - _INSPECTIONS)]
            self._chance.shuffle(self._ahead)
        length = self._ahead.pop()
        turn = None if length is None else self._ready(length(lengths))
        return [] if turn is None else [turn]


class Watcher(Protocol):
    """Observes the machine before and after every round."""

    def begin(self) -> None:
        """A round is about to begin."""
        ...

    def end(self, number: int) -> None:
        """This round is over."""
        ...

    @property
    def disturbances(self) -> Sequence[object]:
        """One for each disturbed round."""
        ...


class Unwatched:
    """Observes nothing."""

    disturbances: tuple[object, ...] = ()

    def begin(self) -> None: ...

    def end(self, number: int) -> None: ...


class TimingPlan(msgspec.Struct, frozen=True):
    """How much an effort measures."""

    rounds: int
    """Never fewer than this many, so that an interval can be given."""
    budget_seconds: float
    """More rounds are taken until the answer is precise enough or this is spent; the stage's deadline is the limit."""
    half_width: float
    """Precise enough: the speedup's 95 % interval reaches no further than this share to either side."""
    block_ns: int
    """Aim for long blocks of about this length, as far as there are distinct inputs."""
    most_rounds: int = 128
    most_confirmations: int = 100
    """Most further rounds of single calls, while they neither confirm nor refute a speed."""
    confirming_seconds: float = math.inf
    """Time limit of these rounds; then the speed stays unconfirmed."""


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
    """A first guess at how long a call of the reference takes: what further ones add to a single one."""
    reference = contestants["reference"]
    calls = min(_CALLS_IN_PROBE[reference.way == "captured"], max(2, most_calls))
    single, several = reference.run(1), reference.run(calls)
    return max(1, (_own_ns(several) - _own_ns(single)) // (calls - 1))


def block_lengths(
    contestants: Mapping[Party, Contestant], most_calls: int, plan: TimingPlan, call_ns: int
) -> tuple[int, int]:
    """Calls in a short block (one) and in a long one, from how long the reference's take.

    Longer, if the candidate turns out to be much faster. Every party then makes one long block, so that memory for the
    results is not new to a process in the first round.
    """
    long = long_block(call_ns, most_calls, plan)
    times = {party: contestant.run(long) for party, contestant in contestants.items()}
    candidates_ns = max(1, (_own_ns(times["candidate"]) - _own_ns(times["shim"])) // long)
    if candidates_ns * _MUCH_QUICKER < call_ns:
        longer = long_block(candidates_ns, most_calls, plan)
        if longer > long:
            long = longer
            for contestant in contestants.values():
                contestant.run(long)
    return 1, long


def long_block(call_ns: int, most_calls: int, plan: TimingPlan) -> int:
    """How many calls that take as long make a long block."""
    return int(min(max(2, most_calls), max(_CALLS_IN_LONG_BLOCK, plan.block_ns // call_ns)))


def _own_ns(times: Times) -> int:
    """Without what the judge itself took."""
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
    """Round after round, until the blocks are enough for the plan's precision or its budget is spent.

    Never until something looks significant: stopping then makes the interval far too narrow. For a disturbed round
    another is taken, as far as the budget allows, but it counts as well. A candidate can disturb the machine, and would
    otherwise choose which of its rounds count.
    """
    watch = watch or Unwatched()
    began = time.monotonic()
    blocks: list[Block] = []
    for number in range(plan.most_rounds):
        spent = _is_spent(time.monotonic() - began, contestants, blocks, plan, enough)
        needed = plan.rounds + (0 if spent else min(len(watch.disturbances), plan.rounds))
        if number >= needed and (
            spent or ((number - needed) % _ROUNDS_BETWEEN_LOOKS == 0 and enough(blocks, plan.half_width))
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
    """Whether the budget is. Captured calls are waited for longer as long as nothing at all is sure about them."""
    if seconds <= plan.budget_seconds or any(contestant.way != "captured" for contestant in contestants.values()):
        return seconds > plan.budget_seconds
    return seconds > _PATIENCE * plan.budget_seconds or enough(blocks, math.inf)


def some_rounds(
    contestants: Mapping[Party, Contestant],
    lengths: tuple[int, ...],
    count: int,
    order: random.Random,
    first: int,
    inspections: Inspections | None = None,
) -> list[Block]:
    """As many rounds as asked for, after one that does not count."""
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
    """Add rounds of single calls, or of chained ones, to the blocks as long as they are wanted and the plan allows."""
    first, until = 1 + max(block.round for block in blocks), time.monotonic() + plan.confirming_seconds
    for number in range(first, first + plan.most_confirmations):
        some_are_done = (number - first) % _CONFIRMATIONS_AT_A_TIME == 0
        if some_are_done and (not wanted(blocks) or time.monotonic() > until):
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
