"""Times candidate, reference and empty call (shim) on the CPU in short blocks of calls, and confirms a claimed speed.

Every call of the candidate has new values, and its result is compared. Not at once, but after a burst of blocks: the
judge's own work between two blocks would move them apart. The judge has its private copy before the next block begins.
The reference gets the same values in the same order.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from torchstone import operators, schema
from torchstone.judge_process.block_results import BlockResults
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.candidate_failures import FAILURES
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.measured_parties import (
    CandidateCalls,
    CandidateChain,
    FreshCalls,
    ReferenceCalls,
    ReferenceChain,
    ReferenceLostError,
    can_be_chained,
    lost,
)
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS
from torchstone.judging import DrawnCall, Expected, Reference, UncapturableError
from torchstone.measuring import needs_single_calls, short_block_experiment, short_blocks
from torchstone.measuring.device_state import Watch
from torchstone.measuring.long_block_experiment import Contestant, Inspections, Times
from torchstone.measuring.repeated_calls import repeated_pairs

WARM_BYTES = 16 << 20
"""Arguments and results of a block on warm caches: they lie in a core's own cache and in its part of the next."""

ShortBlockParties = Mapping[schema.Party, short_block_experiment.ShortBlockContestant]


class BurstDraws:
    """The values of a burst's blocks, for all parties."""

    def __init__(self, draws: FreshCalls) -> None:
        self._draws = draws
        self.blocks: list[tuple[list[DrawnCall], list[Expected]]] = []
        """Of the burst that was prepared last."""

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Draw new values."""
        self.blocks = [self._draws.fresh(calls) for calls in lengths]

    def again(self, calls: int) -> list[DrawnCall]:
        """Values that the candidate has had, or never gets."""
        return self._draws.again(calls)


class CandidateShortBlocks(CandidateCalls):
    """The candidate."""

    way: schema.Way = "called"

    def __init__(self, session: CandidateSession, bound: BoundWorker, draws: FreshCalls, burst: BurstDraws) -> None:
        super().__init__(session, bound, draws)
        self._burst = burst
        self._waiting: deque[tuple[list[DrawnCall], list[Expected]]] = deque()
        self._made: list[tuple[BlockResults, list[Expected]]] = []

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Draw the values of a burst."""
        self._burst.prepare(lengths)
        self._waiting = deque(self._burst.blocks)

    def run(self, calls: int) -> Times:
        """Make the calls. Outside a burst they are compared at once."""
        if not self._waiting:
            return super().run(calls)
        drawn, expected = self._waiting.popleft()
        block = self._session.call_and_keep(self._bound, drawn, expected)
        self._made.append((block, expected))
        return Times(block.elapsed_ns, block.claimed_ns)

    def settle(self) -> None:
        """Compare every result of the burst."""
        for block, expected in self._made:
            self._session.verify(self._bound, block, expected)
        self._made.clear()


class OwnShortBlocks:
    """The reference, or the shim."""

    way: schema.Way = "called"

    def __init__(self, bound: BoundWorker, burst: BurstDraws, pretend: bool) -> None:
        self._bound, self._burst, self._pretend = bound, burst, pretend
        self._waiting: deque[tuple[list[DrawnCall], list[Expected]]] = deque()

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """The candidate's draws serve."""
        self._waiting = deque(self._burst.blocks)

    def run(self, calls: int) -> Times:
        """Make the calls. What they give is copied as the candidate's is: it would lie in caches otherwise."""
        drawn = self._waiting.popleft()[0] if self._waiting else self._burst.again(calls)
        if not self._pretend:
            self._bound.present(drawn)
        deadline = time.monotonic() + HOUSEKEEPING_SECONDS
        try:
            block = (
                self._bound.time(calls, deadline, pretend=True) if self._pretend else self._bound.call(calls, deadline)
            )
        except FAILURES as error:
            raise ReferenceLostError(lost(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)

    def repeat(self, times: int) -> Times:
        """Make one call so often."""
        self._bound.present(self._burst.again(1))
        try:
            block = self._bound.call(1, time.monotonic() + HOUSEKEEPING_SECONDS, repeats=times)
        except FAILURES as error:
            raise ReferenceLostError(lost(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)

    def settle(self) -> None:
        """There is nothing to compare."""


@contextmanager
def timed(bounds: Sequence[BoundWorker], cache: schema.Cache, *, by_core_time: bool) -> Iterator[None]:
    """Blocks of these workers are timed inside.

    For warm caches the judge writes arguments on the workers' core, which stand still meanwhile. For cold caches it
    keeps to its own cores, where the arguments come from.
    """
    before = os.sched_getaffinity(0)
    for bound in bounds:
        bound.is_warm = cache == "warm" and bool(bound.worker.cores)
        bound.counts_core_time = by_core_time
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        for bound in bounds:
            bound.is_warm = bound.counts_core_time = False


def most_calls(bound: BoundWorker, cache: schema.Cache) -> int:
    """In a block: as far as there are distinct inputs, and for warm caches no more than caches hold."""
    return bound.sets if cache == "cold" else min(bound.sets, max(1, WARM_BYTES // bound.layout.footprint_bytes))


def alone_in(lane: MeasuringLane) -> short_block_experiment.Alone:
    """Each burst has the lane alone. Waiting for it is no part of a measurement's budget."""
    return short_block_experiment.Alone(lane.exclusive, lambda: time.monotonic() - lane.waited_seconds)


def own_parties(burst: BurstDraws, own: BoundWorker, blank: BoundWorker) -> ShortBlockParties:
    """The reference and the shim without the candidate, in whose place the reference is called in another worker.

    Otherwise the reference would find its caches untouched.
    """
    return {
        "candidate": OwnShortBlocks(blank, burst, pretend=False),
        "reference": OwnShortBlocks(own, burst, pretend=False),
        "shim": OwnShortBlocks(blank, burst, pretend=True),
    }


def known_reference_ns(session: CandidateSession, case: schema.Case, parties: ShortBlockParties, most: int) -> int:
    """About how long a call of the reference takes. Asked once for a case, however many candidates it has."""
    known, job = session.room.reference_call_ns, session.job
    key = schema.content_key(case, short_blocks.METHOD, job.cache, job.baseline)
    if key not in known:
        known[key] = short_block_experiment.reference_call_ns(parties, most, warm=job.cache == "warm")
    return known[key]


class ShortBlockTiming:
    """The blocks of one measurement."""

    method = short_blocks.METHOD
    uncaptured: str | None = ""
    latencies_ns: tuple[int, ...] = ()

    def __init__(
        self,
        session: CandidateSession,
        bound: BoundWorker,
        other: BoundWorker,
        blank: BoundWorker,
        reference: Reference,
    ) -> None:
        self.bound, self.other, self.reference = bound, other, reference
        self._session, self._blank = session, blank
        self._plan = short_block_experiment.SHORT_BLOCK_PLANS[session.job.effort]
        self._order = random.Random(secrets.randbits(64))
        self._draws = FreshCalls(session, reference)
        burst = BurstDraws(self._draws)
        self._candidate = CandidateShortBlocks(session, bound, self._draws, burst)
        self._reference_blocks = OwnShortBlocks(other, burst, pretend=False)
        self._parties: ShortBlockParties = {
            "candidate": self._candidate,
            "reference": self._reference_blocks,
            "shim": OwnShortBlocks(blank, burst, pretend=True),
        }
        self.watch: Watch
        """Since the contest was begun."""

    def get_ready(self) -> None:
        """Find out what can be planted."""
        self._draws.plan()

    def hold(self) -> tuple[list[schema.Block], int]:
        """Every block, and how many calls a block has."""
        bounds = self.bound, self.other, self._blank
        # All by the same clock: in a worker of several threads others may work while the first one waits.
        single = all(each.worker.held_threads == 1 for each in bounds)
        with timed(bounds, self._session.job.cache, by_core_time=single):
            return self._blocks()

    def _blocks(self) -> tuple[list[schema.Block], int]:
        self.watch = Watch(
            self._session.room.probe, [each.worker.pid for each in (self.bound, self.other, self._blank)]
        )
        alone = alone_in(self._session.room.lane)
        with alone.held():
            calls = self._calls()
        inspections = Inspections(
            -(-self._plan.pairs // short_block_experiment.PAIRS_IN_BURST), self._candidate.inspection
        )
        blocks = short_block_experiment.short_rounds(
            self._parties, calls, self._plan, self._order, self.watch, inspections, alone
        )
        if needs_single_calls(blocks):
            self._confirm(blocks, calls, alone)
        if self._session.job.cache == "warm" and not operators.contract_of(self.reference.case).mutated:
            blocks += self._repeated(alone, 1 + max(block.round for block in blocks))
        return blocks, calls

    def _repeated(self, alone: short_block_experiment.Alone, first: int) -> list[schema.Block]:
        """Blocks that show how long a call takes on warm caches. Not for operators that write to their arguments."""
        known_ns = known_reference_ns(self._session, self.reference.case, self._parties, 1)
        with alone.held():
            return repeated_pairs(self._reference_blocks.repeat, known_ns, first)

    def _calls(self) -> int:
        """In a block. How long the reference's calls take is asked once for a case, however many candidates it has."""
        most = most_calls(self.bound, self._session.job.cache)
        reference_ns = known_reference_ns(self._session, self.reference.case, self._parties, most)
        return short_block_experiment.calls_in_block(self._parties, most, self._plan, reference_ns)

    def _confirm(self, blocks: list[schema.Block], calls: int, alone: short_block_experiment.Alone) -> None:
        """Whether the speed is also there where each call waits for the one before."""
        draws = self._draws
        parties: Mapping[schema.Party, Contestant] = {
            "candidate": CandidateCalls(self._session, self.bound, draws),
            "reference": ReferenceCalls(self.other, draws, pretend=False),
            "shim": ReferenceCalls(self._blank, draws, pretend=True),
        }
        if can_be_chained(self.bound, self._draws):
            parties = {
                "candidate": CandidateChain(self._session, self.bound, draws),
                "reference": ReferenceChain(self.other, draws, pretend=False),
                "shim": ReferenceChain(self._blank, draws, pretend=True),
            }
        else:
            calls = 1
        with suppress(UncapturableError):  # then it stays unconfirmed
            with alone.held():
                for contestant in parties.values():
                    contestant.run(calls)
            short_block_experiment.short_confirmations(
                parties, blocks, calls, self._plan, self._order, needs_single_calls, alone
            )
