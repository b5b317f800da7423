"""Times the candidate, the reference and an empty call (the shim) in turn, alone on the device.

``measuring/long_block_experiment.py`` decides the order and the number of blocks. This module provides the parties on a
GPU; those on the CPU are in ``short_block_timing.py``.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Literal

import msgspec
import torch

from torchstone import gradient_operators, operators, schema
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_failures import FAILURES, VerdictError
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.layout_cost import relaying_ns
from torchstone.judge_process.measured_parties import (
    CandidateCalls,
    CandidateChain,
    CandidateGraphs,
    FreshCalls,
    ReferenceCalls,
    ReferenceChain,
    ReferenceGraphs,
    ReferenceLostError,
    can_be_chained,
    lost,
)
from torchstone.judge_process.measurement_guards import ClockGuard, FloorGuard, Guard, QuiescenceGuard
from torchstone.judge_process.reference_eager_or_compiled import baseline_of, compile_ahead
from torchstone.judge_process.short_block_timing import ShortBlockTiming
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS
from torchstone.judging import Reference, UncapturableError, Work
from torchstone.measuring import is_precise_enough, long_block_experiment, needs_confirmation
from torchstone.measuring.device_state import Watch
from torchstone.measuring.repeated_calls import repeated_call_ns
from torchstone.protocol.commands import Load

Parties = dict[schema.Party, long_block_experiment.Contestant]
_CALLS_IN_CHAIN = 256
_LEAST_FOR_CALL_TIME, _CALLS_FOR_CALL_TIME = 4, 16
"""In a block that only serves to tell the time of a call with its start."""
_BYTES_FOR_CALL_TIME = 128 << 20
"""Of their arguments and results."""
_LATENCIES_WITHOUT_CANDIDATE, _SECONDS_BETWEEN_LATENCIES = 41, 0.01
"""How often, and how far apart, a device is asked that was busy before a candidate was removed. Another program may use
it now and then: a few answers within a millisecond would not tell."""


def measure(session: CandidateSession, bound: BoundWorker, reference: Reference, work: Work) -> schema.Measurement:
    """Time the candidate in its worker against the reference, and ask every guard about the figures."""
    room, job = session.room, session.job
    given = bound.layout, bound.sets
    if not bound.on_device:  # a process that has served other cases has other memory than the candidate's
        room.dismiss_own_workers()
    with own_bound_worker(session, *given, "reference") as other, own_bound_worker(session, *given, "shim") as blank:
        kind = _InterleavedTiming if bound.on_device else ShortBlockTiming
        contest = kind(session, bound, other, blank, reference)
        with session.clock.in_stage("measure", job.deadlines.measure_seconds):  # what needs no lane to itself
            room.preparable_share(reference)
            contest.get_ready()
        room.pool.settle()
        # Short blocks take the lane burst by burst: meanwhile other judges work, as far as they compute.
        lane = room.lane.exclusive() if bound.on_device else nullcontext()
        with lane, session.clock.in_stage("measure", job.deadlines.measure_seconds):
            return _hold(session, contest, work)


@contextmanager
def own_bound_worker(
    session: CandidateSession, layout: CallLayout, sets: int, party: Literal["reference", "shim"]
) -> Iterator[BoundWorker]:
    """The reference, or the shim, in a worker of its own. Its failures are ours, not the candidate's."""
    room, case = session.room, session.job.case
    deadline = time.monotonic() + HOUSEKEEPING_SECONDS
    native = baseline_of(session.job) if party == "reference" else schema.torchs_own(case)
    worker = room.own_worker(party)
    bound = BoundWorker(worker, case, layout, sets, room.device)
    try:
        try:
            worker.ask(Load(secrets.token_hex(8), native), deadline)
            bound.bind(deadline)
            if party == "reference":
                compile_ahead(session, bound)
        except FAILURES as error:
            raise ReferenceLostError(lost(error, party)) from error
        yield bound
        try:
            bound.release(time.monotonic() + HOUSEKEEPING_SECONDS)
        except FAILURES as error:
            raise ReferenceLostError(lost(error, party)) from error
    except BaseException:
        room.dismiss_own_workers()  # before the buffers that they see are freed
        raise
    finally:
        bound.close()


def _hold(session: CandidateSession, contest: _InterleavedTiming | ShortBlockTiming, work: Work) -> schema.Measurement:
    room = session.room
    began, before = time.time_ns(), room.probe.state()
    blocks, long = contest.hold()
    contest.watch.finish()
    with room.lane.exclusive():  # some costs of calls are timed for it, and once the bandwidth
        measurement = _measurement(session, contest, work, blocks, long, began, before)
        peak_bytes_per_second = room.peak_bytes_per_second
    _examine(session, measurement, contest, peak_bytes_per_second)
    room.doubt_ceilings(measurement)
    return measurement


def _measurement(
    session: CandidateSession,
    contest: _InterleavedTiming | ShortBlockTiming,
    work: Work,
    blocks: list[schema.Block],
    long: int,
    began_unix_ns: int,
    before: schema.DeviceState,
) -> schema.Measurement:
    room = session.room
    after = room.probe.state()
    slowed = dict.fromkeys((*after.throttle_reasons, *contest.watch.slowed))
    return schema.Measurement(
        method=contest.method,
        blocks=tuple(blocks),
        began_unix_ns=began_unix_ns,
        ended_unix_ns=time.time_ns(),
        threads=room.threads,
        distinct_inputs=long,
        bytes_per_call=contest.other.layout.bytes_per_call,
        before=before,
        after=msgspec.structs.replace(after, throttle_reasons=tuple(slowed)),
        speed_of_light=room.speed_of_light(work, _calls_in_a_row(blocks, long), session.job.cache),
        uncaptured=contest.uncaptured,
        cache=session.job.cache,
        baseline=session.job.baseline,
        disturbances=contest.watch.disturbances,
        energy_millijoules=contest.watch.energy_millijoules,
        preparable_share=room.preparable_share(contest.reference),
        differentiating_ns=_differentiating_ns(session.job.case, room.device),
        relaying_ns=relaying_ns(contest.bound.layout, contest.bound.lying, room.device),
    )


def _calls_in_a_row(blocks: list[schema.Block], long: int) -> int:
    """On memory of their own, of which the times tell: those of a block, or one call that is repeated."""
    return long if repeated_call_ns(blocks) is None else 1


def _differentiating_ns(case: schema.Case, device: torch.device) -> float | None:
    """Of a gradient: what differentiating takes besides the work."""
    if not schema.is_gradient(case.operator):
        return None
    results = operators.tensor_count(case.args[0])
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case)[results:]]
    leaves = sum(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
    return gradient_operators.differentiating_ns(results, leaves, device)


class _InterleavedTiming:
    """The blocks of one measurement."""

    method = long_block_experiment.METHOD

    def __init__(
        self,
        session: CandidateSession,
        bound: BoundWorker,
        other: BoundWorker,
        blank: BoundWorker,
        reference: Reference,
    ) -> None:
        self.other, self.reference = other, reference
        self._plan = long_block_experiment.TIMING_PLANS[session.job.effort]
        self._order = random.Random(secrets.randbits(64))
        self.bound = bound
        draws = FreshCalls(session, reference)
        sweep = session.room.sweep_caches if session.job.cache == "cold" else None
        self._called = CandidateCalls(session, bound, draws)
        self._calls: Parties = {
            "candidate": self._called,
            "reference": ReferenceCalls(other, draws, pretend=False),
            "shim": ReferenceCalls(blank, draws, pretend=True),
        }
        self._played = CandidateGraphs(session, bound, draws, sweep, chained=False)
        self._recorded: dict[schema.Party, CandidateGraphs | ReferenceGraphs] = {
            "candidate": self._played,
            "reference": ReferenceGraphs(other, draws, sweep, chained=False),
            "shim": ReferenceGraphs(blank, draws, sweep, chained=False, pretend=True),
        }
        self._graphs: Parties = {**self._recorded}
        self._linked = CandidateGraphs(session, bound, draws, sweep, chained=True)
        self._chains: Parties = {
            "candidate": self._linked,
            "reference": ReferenceGraphs(other, draws, sweep, chained=True),
            "shim": ReferenceGraphs(blank, draws, sweep, chained=True, pretend=True),
        }
        if not bound.records_graphs:
            self._chains = {
                "candidate": CandidateChain(session, bound, draws),
                "reference": ReferenceChain(other, draws, pretend=False),
                "shim": ReferenceChain(blank, draws, pretend=True),
            }
        self._draws = draws
        self._known_call_ns, self._cache = session.room.reference_call_ns, session.job.cache
        self._baseline = session.job.baseline
        self._probe, self._pids = session.room.probe, [each.worker.pid for each in (bound, other, blank)]
        self.watch: Watch
        """Since the contest was begun."""
        self.uncaptured: str | None = None if bound.records_graphs else ""

    @property
    def latencies_ns(self) -> list[int]:
        """How long the judge waited for the device before the candidate's blocks."""
        return self._called.latencies_ns + self._played.latencies_ns + self._linked.latencies_ns

    def get_ready(self) -> None:
        """Find out what can be planted, and record the first graphs of the measurement.

        They can be recorded only if it is known how long their blocks are.
        """
        self._draws.plan()
        call_ns = self._known_call_ns.get(self._key_of(self._graphs))
        if call_ns is None:
            return
        long = long_block_experiment.long_block(call_ns, self.bound.sets, self._plan)
        with suppress(UncapturableError):  # it will not be recorded later, either, and then something follows from it
            for party in self._recorded.values():
                party.record(long)

    def hold(self) -> tuple[list[schema.Block], int]:
        """Every block, and how many calls a long one has."""
        self.watch = Watch(self._probe, self._pids)
        return self._blocks()

    def _blocks(self) -> tuple[list[schema.Block], int]:
        if not self.bound.records_graphs and self.bound.sets > 1 and can_be_chained(self.bound, self._draws):
            lengths = self._lengths(self._calls)
            blocks = self._rounds(self._calls, lengths[1:])
            self._confirm_by_chains(blocks, lengths[1])
            return blocks, lengths[1]
        if not self.bound.records_graphs or not self._reference_can_be_captured():
            return self._by_calls()
        try:
            lengths = self._lengths(self._graphs)
        except UncapturableError as error:
            self.uncaptured = f"the candidate: {error}"
            return self._by_calls_against_graphs()
        if lengths[1] > 1 and self._draws.can_be_chained():
            blocks = self._rounds(self._graphs, lengths[1:])
            self._confirm_by_chains(blocks, lengths[1])
        else:
            blocks = self._decide(self._graphs, lengths)
        few, rounds = self._calls_for_call_time(), self._plan.rounds // 2
        inspections = long_block_experiment.Inspections(rounds, self._called.inspection)
        blocks += long_block_experiment.some_rounds(
            self._calls, (few,), rounds, self._order, 1 + blocks[-1].round, inspections
        )
        return blocks, lengths[1]

    def _calls_for_call_time(self) -> int:
        """Fewer of large ones: to start these takes next to nothing of their time, and to draw them the most."""
        fitting = _BYTES_FOR_CALL_TIME // self.bound.layout.footprint_bytes
        return min(max(_LEAST_FOR_CALL_TIME, min(_CALLS_FOR_CALL_TIME, fitting)), self.bound.sets)

    def _reference_can_be_captured(self) -> bool:
        """Asked of the reference first: what a case is measured by is not the candidate's to choose."""
        if self._key_of(self._graphs) in self._known_call_ns:
            return True
        try:
            for party in ("reference", "shim"):
                self._graphs[party].run(1)
        except UncapturableError as error:
            self.uncaptured = f"the reference: {error}"
            return False
        return True

    def _by_calls(self) -> tuple[list[schema.Block], int]:
        lengths = self._lengths(self._calls)
        return self._decide(self._calls, lengths), lengths[1]

    def _lengths(self, parties: Parties) -> tuple[int, int]:
        """Of blocks. How long the reference's calls take is asked once for a case, however many candidates it has."""
        known, key = self._known_call_ns, self._key_of(parties)
        if key not in known:
            known[key] = long_block_experiment.reference_call_ns(parties, self.bound.sets)
        return long_block_experiment.block_lengths(parties, self.bound.sets, self._plan, known[key])

    def _key_of(self, parties: Parties) -> str:
        return schema.content_key(self.reference.case, parties["reference"].way, self._cache, self._baseline)

    def _by_calls_against_graphs(self) -> tuple[list[schema.Block], int]:
        """Only the candidate cannot be captured: its call time is compared with the reference's device time.

        So everything that starting the candidate's calls costs counts, and nothing of the reference's: refusing to be
        captured never pays.
        """
        blocks, long = self._by_calls()
        theirs: Parties = {party: runs for party, runs in self._graphs.items() if party != "candidate"}
        count = len({block.round for block in blocks if block.calls == long})
        return blocks + long_block_experiment.some_rounds(
            theirs, (long,), count, self._order, 1 + blocks[-1].round
        ), long

    def _confirm_by_chains(self, blocks: list[schema.Block], long: int) -> None:
        """Whether the speed is also there where each call waits for the one before."""
        if not needs_confirmation(blocks):
            return
        calls = min(long, _CALLS_IN_CHAIN)
        with suppress(UncapturableError):  # then it stays unconfirmed
            for party in self._chains.values():
                party.run(calls)
            long_block_experiment.confirmations(
                self._chains, blocks, calls, self._plan, self._order, needs_confirmation
            )

    def _decide(self, parties: Parties, lengths: tuple[int, int]) -> list[schema.Block]:
        blocks = self._rounds(parties, lengths)
        inspections = self._inspections(parties)
        long_block_experiment.confirmations(
            parties, blocks, 1, self._plan, self._order, needs_confirmation, inspections
        )
        return blocks

    def _rounds(self, parties: Parties, lengths: tuple[int, ...]) -> list[schema.Block]:
        inspections = self._inspections(parties)
        return long_block_experiment.rounds(
            parties, lengths, self._plan, self._order, is_precise_enough, self.watch, inspections
        )

    def _inspections(self, parties: Parties) -> long_block_experiment.Inspections:
        """Chained calls are not inspected: what a call is given there is made of what the one before gave."""
        candidate = self._called if parties is self._calls else self._played
        return long_block_experiment.Inspections(self._plan.rounds, candidate.inspection)


def _examine(
    session: CandidateSession,
    measurement: schema.Measurement,
    contest: _InterleavedTiming | ShortBlockTiming,
    peak_bytes_per_second: float,
) -> None:
    """Ask every guard; the first that proves something decides."""

    def latencies_without_candidate_ns() -> Iterator[int]:
        session.dismiss()
        for _ in range(_LATENCIES_WITHOUT_CANDIDATE):
            yield contest.other.device_latency_ns()
            time.sleep(_SECONDS_BETWEEN_LATENCIES)

    guards: list[Guard] = [
        QuiescenceGuard(contest.latencies_ns, latencies_without_candidate_ns),
        ClockGuard(),
        FloorGuard(contest.other.layout.written_bytes, peak_bytes_per_second),
    ]
    for guard in guards:
        proof = guard.examine(measurement)
        if proof is not None:
            raise VerdictError(proof)
