"""Runs the timing experiment on the CPU: short blocks of calls of candidate and reference in pairs, pairs in bursts.

A pair is one block of each party (candidate, reference, and the empty call or *shim*) within a few milliseconds. A
burst is a few pairs on values that were drawn before it, and whose results are compared after it. Which of candidate
and reference comes first is drawn for each burst. The judge sleeps while a worker works, so that on a busy machine the
system schedules it as soon as the worker has replied. The parties time their blocks themselves; the clock is read here
only to keep to a budget.

Only the blocks of a burst need the device exclusively. While values are drawn and results are compared, other judges
may use it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import msgspec

from torchstone.measuring.long_block_experiment import Contestant, Inspections, NoWatcher, Times, Turn, Watcher
from torchstone.measuring.short_blocks import is_doubtful, is_precise
from torchstone.schema import Block, Effort, Party

_PROBES = 4
"""Blocks for a first estimate of the time per call; the shortest counts."""
_CALLS_IN_PROBE = 8
"""Most calls of such a block."""
_MUCH_FASTER = 2
"""Factor over the reference from which the candidate decides the number of calls in a block."""
_MOST_LENGTHENING = 8
"""Largest factor by which a fast candidate increases the number of calls that follows from the reference's time."""
PAIRS_IN_BURST = 4
"""Pairs of a burst. It is limited because the judge's memory holds all values and results of a burst."""
_PAIRS_BETWEEN_CONFIRMATION_TESTS = 4
"""Confirming pairs after which it is tested whether more are needed."""
_BUDGET_FACTOR_IF_DOUBTFUL = 2.5
"""Factor on the budget for a doubtful result."""


class ShortBlockContestant(Contestant, Protocol):
    """A party whose results are compared after each burst."""

    def settle(self) -> None:
        """Compare the results of the burst that has ended."""
        ...


class ExclusiveUse(NamedTuple):
    """Exclusive use of the device, and a clock that leaves out the time of waiting for it."""

    acquire: Callable[[], AbstractContextManager[object]] = nullcontext
    """Returns a context in which the device is used exclusively."""
    seconds: Callable[[], float] = time.monotonic
    """The clock, which is stopped while exclusive use is waited for."""


UNSHARED = ExclusiveUse()
"""For a device that nothing else uses."""


class ShortBlockPlan(msgspec.Struct, frozen=True):
    """How much an effort measures on the CPU."""

    pairs: int
    """Least number of pairs."""
    most_pairs: int
    """Largest number of pairs."""
    budget_seconds: float
    """More pairs are taken until the result is precise enough or this time has passed."""
    half_width: float
    """Precise enough: the speedup's 95 % interval has at most this relative half width."""
    most_confirmations: int
    """Most pairs of calls that wait for each other, while these neither confirm nor refute a speedup."""
    confirming_seconds: float
    """Time limit of these pairs. After it the speedup stays unconfirmed."""
    block_ns: int = 500_000
    """Wanted length of a block: longer than a block's own cost, shorter than a time slice of a busy system."""


SHORT_BLOCK_PLANS: dict[Effort, ShortBlockPlan] = {
    "quick": ShortBlockPlan(12, 24, 0.3, 0.05, 48, 2.0),
    "normal": ShortBlockPlan(24, 60, 0.8, 0.02, 120, 4.0),
    "thorough": ShortBlockPlan(60, 400, 5.0, 0.005, 400, 20.0),
}


def reference_call_ns(parties: Mapping[Party, Contestant], most_calls: int, *, warm: bool = False) -> int:
    """A first estimate of the reference's time per call.

    It uses the clock of the reference's worker, which is trusted, so that a block's own cost is left out. On ``warm``
    caches calls are so short that the first call of a block takes as long as many. So there the time of a block of one
    call is subtracted.
    """
    calls = max(1, min(_CALLS_IN_PROBE, most_calls))
    found_ns = _shortest_ns(parties["reference"], calls)
    if warm and calls > 1:
        return max(1, (found_ns - _shortest_ns(parties["reference"], 1)) // (calls - 1))
    return max(1, found_ns // calls)


def calls_in_block(
    parties: Mapping[Party, Contestant], most_calls: int, plan: ShortBlockPlan, reference_ns: int
) -> int:
    """Number of calls in a block, from the reference's time per call; more if the candidate is much faster.

    The candidate's time is by its worker's clock. If that is wrong, blocks only become longer, or stay as they are.
    Afterwards every party has run a block of this length.
    """
    most_calls = max(1, most_calls)
    calls = calls_of_reference(most_calls, plan, reference_ns)
    for party, contestant in parties.items():
        if party != "candidate":
            contestant.run(calls)
    own_ns = max(1, _shortest_ns(parties["candidate"], calls) // calls)
    if own_ns * _MUCH_FASTER >= reference_ns:
        return calls
    longer = min(most_calls, _MOST_LENGTHENING * calls, max(calls, plan.block_ns // own_ns))
    for contestant in parties.values() if longer > calls else ():
        contestant.run(longer)
    return longer


def calls_of_reference(most_calls: int, plan: ShortBlockPlan, reference_ns: int) -> int:
    """Number of calls in a block, from the reference's time per call only."""
    return min(max(1, most_calls), max(1, plan.block_ns // reference_ns))


def _shortest_ns(contestant: Contestant, calls: int) -> int:
    return min(contestant.run(calls).claimed_ns for _ in range(_PROBES))


def short_rounds(
    parties: Mapping[Party, ShortBlockContestant],
    calls: int,
    plan: ShortBlockPlan,
    order: random.Random,
    watch: Watcher | None = None,
    inspections: Inspections | None = None,
    alone: ExclusiveUse = UNSHARED,
) -> list[Block]:
    """Run bursts of pairs of blocks until the speedup's 95 % interval is as narrow as ``plan`` requires.

    A burst is a few pairs; a pair is one block of calls of each party. There are ``plan.pairs`` to ``plan.most_pairs``
    pairs. Between these numbers, bursts also end after ``plan.budget_seconds``. A doubtful result gets more time, up to
    _BUDGET_FACTOR_IF_DOUBTFUL budgets: its interval is wide, or excludes 1 perhaps by chance, see :func:`is_doubtful`.

    That the interval excludes 1 is no reason to stop: stopping then would make intervals far too narrow.
    """
    began = alone.seconds()
    blocks: list[Block] = []
    for first in range(0, plan.most_pairs, PAIRS_IN_BURST):
        if first >= plan.pairs and _is_enough(alone.seconds() - began, blocks, plan):
            break
        numbers = range(first, min(first + PAIRS_IN_BURST, plan.most_pairs))
        blocks += _burst(parties, calls, numbers, order, watch or NoWatcher(), inspections, alone)
    return blocks


def _is_enough(seconds: float, blocks: Sequence[Block], plan: ShortBlockPlan) -> bool:
    if seconds > _BUDGET_FACTOR_IF_DOUBTFUL * plan.budget_seconds:
        return True
    if is_doubtful(blocks):
        return False
    return seconds > plan.budget_seconds or is_precise(blocks, plan.half_width)


def some_pairs(
    parties: Mapping[Party, ShortBlockContestant],
    calls: int,
    count: int,
    order: random.Random,
    first: int,
    alone: ExclusiveUse = UNSHARED,
) -> list[Block]:
    """Run ``count`` pairs, numbered from ``first``, after one block of each party that is not recorded."""
    with alone.acquire():
        for contestant in parties.values():
            contestant.run(calls)
    blocks: list[Block] = []
    for begin in range(first, first + count, PAIRS_IN_BURST):
        numbers = range(begin, min(begin + PAIRS_IN_BURST, first + count))
        blocks += _burst(parties, calls, numbers, order, NoWatcher(), None, alone)
    return blocks


def short_confirmations(
    parties: Mapping[Party, Contestant],
    blocks: list[Block],
    calls: int,
    plan: ShortBlockPlan,
    order: random.Random,
    wanted: Callable[[Sequence[Block]], bool],
    alone: ExclusiveUse = UNSHARED,
) -> None:
    """Add further pairs to ``blocks`` while ``wanted(blocks)`` is True, and number and time are within the plan.

    Their calls are made one at a time, to confirm or refute a speed. Either ``calls`` is 1, or the parties chain the
    calls of a block: each gets arguments that are made from the result of the one before.
    """
    first, until = 1 + max(block.round for block in blocks), alone.seconds() + plan.confirming_seconds
    for number in range(first, first + plan.most_confirmations):
        if (number - first) % _PAIRS_BETWEEN_CONFIRMATION_TESTS == 0 and (
            not wanted(blocks) or alone.seconds() > until
        ):
            return
        for contestant in parties.values():
            contestant.prepare((calls,))
        with alone.acquire():
            blocks += _pair(parties, calls, number, _turns_in_pair(parties, order.random() < 0.5, order))


def _burst(
    parties: Mapping[Party, ShortBlockContestant],
    calls: int,
    numbers: range,
    order: random.Random,
    watch: Watcher,
    inspections: Inspections | None,
    alone: ExclusiveUse,
) -> list[Block]:
    turns: list[Turn] = inspections.due((calls,)) if inspections is not None else []
    for contestant in parties.values():
        contestant.prepare((calls,) * len(numbers))
    blocks: list[Block] = []
    inspected, candidate_first = order.choice(numbers), order.random() < 0.5
    with alone.acquire():
        for number in numbers:
            watch.begin()
            others = turns if number == inspected else ()
            blocks += _pair(parties, calls, number, _turns_in_pair(parties, candidate_first, order), others)
            watch.end(number)
    for contestant in parties.values():
        contestant.settle()
    return blocks


def _turns_in_pair(
    parties: Mapping[Party, Contestant], candidate_first: bool, order: random.Random
) -> tuple[Party, ...]:
    """The order of a pair: candidate and reference alternate throughout a burst, and the shim comes anywhere.

    A block that follows one of the same party finds its memory in the caches, and is up to twice as fast.
    """
    turns: list[Party] = ["candidate", "reference"] if candidate_first else ["reference", "candidate"]
    if "shim" in parties:
        turns.insert(order.randrange(len(turns) + 1), "shim")
    return tuple(turns)


def _pair(
    parties: Mapping[Party, Contestant],
    calls: int,
    number: int,
    turns: Sequence[Party],
    others: Sequence[Turn] = (),
) -> list[Block]:
    for turn in others:
        turn()
    return [_block(parties[party], party, calls, number) for party in turns]


def _block(contestant: Contestant, party: Party, calls: int, number: int) -> Block:
    times: Times = contestant.run(calls)
    return Block(number, party, calls, times.elapsed_ns, times.claimed_ns, contestant.way)
