"""Times candidate, reference and empty call (shim) on the CPU in short blocks of calls, and confirms a claimed speed.

Every call of the candidate has new values, and its result is compared. The judge compares after a burst of blocks,
because its own work would separate two blocks in time. It takes its private copy before the next block begins. The
reference gets the same values in the same order.
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
    own_worker_failure,
)
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS
from torchstone.judging import DrawnCall, Expected, Reference, UncapturableError
from torchstone.measuring import needs_single_calls, short_block_experiment, short_blocks
from torchstone.measuring.device_state import Watch
from torchstone.measuring.long_block_experiment import Contestant, Inspections, Times
from torchstone.measuring.repeated_calls import repeated_pairs

WARM_BYTES = 16 << 20
"""Most bytes of arguments and results of a block on warm caches. They fit into a core's own cache and its part of the
next level."""

ShortBlockParties = Mapping[schema.Party, short_block_experiment.ShortBlockContestant]


class BurstDraws:
    """The values of a burst's blocks, for all parties."""

    def __init__(self, draws: FreshCalls) -> None:
        self._draws = draws
        self.blocks: list[tuple[list[DrawnCall], list[Expected]]] = []
        """Calls and expected results of each block of the burst that was prepared last."""

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Draw new values for a burst of blocks with these numbers of calls."""
        self.blocks = [self._draws.fresh(calls) for calls in lengths]

    def again(self, calls: int) -> list[DrawnCall]:
        """Values for a block outside a burst: the candidate's last ones, or some that it never gets."""
        return self._draws.again(calls)


class CandidateShortBlocks(CandidateCalls):
    """The candidate, whose results are compared after each burst."""

    way: schema.Way = "called"

    def __init__(self, session: CandidateSession, bound: BoundWorker, draws: FreshCalls, burst: BurstDraws) -> None:
        super().__init__(session, bound, draws)
        self._burst = burst
        self._waiting: deque[tuple[list[DrawnCall], list[Expected]]] = deque()
        self._uncompared: list[tuple[BlockResults, list[Expected]]] = []

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
        self._uncompared.append((block, expected))
        return Times(block.elapsed_ns, block.claimed_ns)

    def settle(self) -> None:
        """Compare every result of the burst."""
        for block, expected in self._uncompared:
            self._session.verify(self._bound, block, expected)
        self._uncompared.clear()


class OwnShortBlocks:
    """The reference or the shim, on the values that were drawn for the candidate."""

    way: schema.Way = "called"

    def __init__(self, bound: BoundWorker, burst: BurstDraws, pretend: bool) -> None:
        self._bound, self._burst, self._pretend = bound, burst, pretend
        self._waiting: deque[tuple[list[DrawnCall], list[Expected]]] = deque()

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Take the values that were drawn for the candidate."""
        self._waiting = deque(self._burst.blocks)

    def run(self, calls: int) -> Times:
        """Make the calls. Results are copied as the candidate's are, so that both leave the caches alike."""
        drawn = self._waiting.popleft()[0] if self._waiting else self._burst.again(calls)
        if not self._pretend:
            self._bound.present(drawn)
        deadline = time.monotonic() + HOUSEKEEPING_SECONDS
        try:
            block = (
                self._bound.time(calls, deadline, pretend=True) if self._pretend else self._bound.call(calls, deadline)
            )
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)

    def repeat(self, times: int) -> Times:
        """Make one call this many times."""
        self._bound.present(self._burst.again(1))
        try:
            block = self._bound.call(1, time.monotonic() + HOUSEKEEPING_SECONDS, repeats=times)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)

    def settle(self) -> None:
        """Do nothing: these results are not compared."""


@contextmanager
def timed(bounds: Sequence[BoundWorker], cache: schema.Cache, *, by_core_time: bool) -> Iterator[None]:
    """Set these workers up for timed blocks inside.

    For warm caches the judge writes arguments on the cores of the workers, which are paused meanwhile. For cold caches
    it stays on its own cores. ``by_core_time``: a block's time is that for which the worker had its core.
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
    """Most calls in a block: one for each distinct input, and on warm caches no more than WARM_BYTES hold."""
    return bound.sets if cache == "cold" else min(bound.sets, max(1, WARM_BYTES // bound.layout.footprint_bytes))


def alone_in(lane: MeasuringLane) -> short_block_experiment.ExclusiveUse:
    """Gives each burst the lane alone. The time of waiting for it does not count in a measurement's budget."""
    return short_block_experiment.ExclusiveUse(lane.exclusive, lambda: time.monotonic() - lane.waited_seconds)


def own_parties(burst: BurstDraws, reference_worker: BoundWorker, shim_worker: BoundWorker) -> ShortBlockParties:
    """Parties for timing the reference after the candidate's end, or before it is loaded.

    Another worker calls the reference where the candidate's blocks would be. Without that the reference would find its
    data in the caches.
    """
    return {
        "candidate": OwnShortBlocks(shim_worker, burst, pretend=False),
        "reference": OwnShortBlocks(reference_worker, burst, pretend=False),
        "shim": OwnShortBlocks(shim_worker, burst, pretend=True),
    }


def known_reference_ns(session: CandidateSession, case: schema.Case, parties: ShortBlockParties, most: int) -> int:
    """About how many nanoseconds a call of the reference takes. Measured once per case and judge."""
    known, job = session.resources.reference_call_ns, session.job
    key = schema.content_key(case, short_blocks.METHOD, job.cache, job.baseline)
    if key not in known:
        known[key] = short_block_experiment.reference_call_ns(parties, most, warm=job.cache == "warm")
    return known[key]


class ShortBlockTiming:
    """Runs the blocks of one measurement on the CPU."""

    method = short_blocks.METHOD
    uncaptured: str | None = ""
    latencies_ns: tuple[int, ...] = ()

    def __init__(
        self,
        session: CandidateSession,
        bound: BoundWorker,
        reference_worker: BoundWorker,
        shim_worker: BoundWorker,
        reference: Reference,
    ) -> None:
        self.bound, self.reference_worker, self.reference = bound, reference_worker, reference
        self._session, self._shim_worker = session, shim_worker
        self._plan = short_block_experiment.SHORT_BLOCK_PLANS[session.job.effort]
        self._order = random.Random(secrets.randbits(64))
        self._draws = FreshCalls(session, reference)
        burst = BurstDraws(self._draws)
        self._candidate = CandidateShortBlocks(session, bound, self._draws, burst)
        self._reference_blocks = OwnShortBlocks(reference_worker, burst, pretend=False)
        self._parties: ShortBlockParties = {
            "candidate": self._candidate,
            "reference": self._reference_blocks,
            "shim": OwnShortBlocks(shim_worker, burst, pretend=True),
        }
        self.watch: Watch
        """Observes the machine since the first block. Set by :meth:`run_blocks`."""

    def prepare(self) -> None:
        """Choose the values to plant."""
        self._draws.plan()

    def run_blocks(self) -> tuple[list[schema.Block], int]:
        """Run all blocks. Returns them, and how many calls a block has."""
        bounds = self.bound, self.reference_worker, self._shim_worker
        # One clock for all. Core time needs single threads: others may work while the first one waits.
        single = all(each.worker.frozen_threads == 1 for each in bounds)
        with timed(bounds, self._session.job.cache, by_core_time=single):
            return self._blocks()

    def _blocks(self) -> tuple[list[schema.Block], int]:
        self.watch = Watch(
            self._session.resources.probe,
            [each.worker.pid for each in (self.bound, self.reference_worker, self._shim_worker)],
        )
        alone = alone_in(self._session.resources.lane)
        with alone.acquire():
            calls = self._calls_in_block()
        inspections = Inspections(
            -(-self._plan.pairs // short_block_experiment.PAIRS_IN_BURST), self._candidate.inspection
        )
        blocks = short_block_experiment.short_rounds(
            self._parties, calls, self._plan, self._order, self.watch, inspections, alone
        )
        if needs_single_calls(blocks):
            self._confirm(blocks, calls, alone)
        if self._session.job.cache == "warm" and not operators.contract_of(self.reference.case).mutated:
            blocks += self._repeated_blocks(alone, 1 + max(block.round for block in blocks))
        return blocks, calls

    def _repeated_blocks(self, alone: short_block_experiment.ExclusiveUse, first: int) -> list[schema.Block]:
        """Blocks that show how long a call of the reference takes on warm caches, when it is made again and again."""
        known_ns = known_reference_ns(self._session, self.reference.case, self._parties, 1)
        with alone.acquire():
            return repeated_pairs(self._reference_blocks.repeat, known_ns, first)

    def _calls_in_block(self) -> int:
        """How many calls a block has. The reference's call time is measured once per case and judge."""
        most = most_calls(self.bound, self._session.job.cache)
        reference_ns = known_reference_ns(self._session, self.reference.case, self._parties, most)
        return short_block_experiment.calls_in_block(self._parties, most, self._plan, reference_ns)

    def _confirm(self, blocks: list[schema.Block], calls: int, alone: short_block_experiment.ExclusiveUse) -> None:
        """Add pairs of chained calls, each of which waits for the one before, or of single calls."""
        draws = self._draws
        parties: Mapping[schema.Party, Contestant] = {
            "candidate": CandidateCalls(self._session, self.bound, draws),
            "reference": ReferenceCalls(self.reference_worker, draws, pretend=False),
            "shim": ReferenceCalls(self._shim_worker, draws, pretend=True),
        }
        if can_be_chained(self.bound, self._draws):
            parties = {
                "candidate": CandidateChain(self._session, self.bound, draws),
                "reference": ReferenceChain(self.reference_worker, draws, pretend=False),
                "shim": ReferenceChain(self._shim_worker, draws, pretend=True),
            }
        else:
            calls = 1
        with suppress(UncapturableError):  # then it stays unconfirmed
            with alone.acquire():
                for contestant in parties.values():
                    contestant.run(calls)
            short_block_experiment.short_confirmations(
                parties, blocks, calls, self._plan, self._order, needs_single_calls, alone
            )
