"""Times the candidate, the reference and an empty call (the shim) in turn, alone on the device.

:func:`measure` is the entry for every device. ``measuring/long_block_experiment.py`` decides the order and the number
of blocks. This module provides the parties on a GPU; those on the CPU are in ``short_block_timing.py``.
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
    own_worker_failure,
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
_MOST_CALLS_IN_CHAIN = 256
"""Most calls of a chained block."""
_LEAST_CALLS_FOR_CALL_TIME, _MOST_CALLS_FOR_CALL_TIME = 4, 16
"""Fewest and most calls of a block that shows the call time, which includes the launch, of calls that are captured."""
_MOST_BYTES_FOR_CALL_TIME = 128 << 20
"""Most bytes of arguments and results of such a block, unless it has the fewest calls."""
_LATENCIES_WITHOUT_CANDIDATE, _SECONDS_BETWEEN_LATENCIES = 41, 0.01
"""Number of latency readings after the candidate was removed, and the pause between two. Another program may use the
device only now and then, so a few readings within a millisecond would miss it."""


def measure(session: CandidateSession, bound: BoundWorker, reference: Reference, work: Work) -> schema.Measurement:
    """Time the candidate in its worker against the reference, and run every guard on the measurement.

    Raises VerdictError if a guard proves something.
    """
    resources, job = session.resources, session.job
    layout_and_sets = bound.layout, bound.sets
    if not bound.on_device:  # new processes: those of other cases have other memory than the candidate's
        resources.dismiss_own_workers()
    with (
        own_bound_worker(session, *layout_and_sets, "reference") as reference_worker,
        own_bound_worker(session, *layout_and_sets, "shim") as shim_worker,
    ):
        kind = _InterleavedTiming if bound.on_device else ShortBlockTiming
        timing = kind(session, bound, reference_worker, shim_worker, reference)
        with session.clock.in_stage("measure", job.deadlines.measure_seconds):  # this does not need the device alone
            resources.preparable_share(reference)
            timing.prepare()
        resources.pool.settle()
        # Short blocks take the lane for one burst at a time. Between bursts other judges may use it.
        lane = resources.lane.exclusive() if bound.on_device else nullcontext()
        with lane, session.clock.in_stage("measure", job.deadlines.measure_seconds):
            return _run_and_examine(session, timing, work)


@contextmanager
def own_bound_worker(
    session: CandidateSession, layout: CallLayout, sets: int, party: Literal["reference", "shim"]
) -> Iterator[BoundWorker]:
    """Bind the reference, or the shim, in a worker of its own. Its failure raises ReferenceLostError."""
    resources, case = session.resources, session.job.case
    deadline = time.monotonic() + HOUSEKEEPING_SECONDS
    implementation = baseline_of(session.job) if party == "reference" else schema.torchs_own(case)
    worker = resources.own_worker(party)
    bound = BoundWorker(worker, case, layout, sets, resources.device)
    try:
        try:
            worker.ask(Load(secrets.token_hex(8), implementation), deadline)
            bound.bind(deadline)
            if party == "reference":
                compile_ahead(session, bound)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error, party)) from error
        yield bound
        try:
            bound.release(time.monotonic() + HOUSEKEEPING_SECONDS)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error, party)) from error
    except BaseException:
        resources.dismiss_own_workers()  # they must end before the buffers that they see are freed
        raise
    finally:
        bound.close()


def _run_and_examine(
    session: CandidateSession, timing: _InterleavedTiming | ShortBlockTiming, work: Work
) -> schema.Measurement:
    """Run the blocks, make the measurement of them, and run the guards on it."""
    resources = session.resources
    began, before = time.time_ns(), resources.probe.state()
    blocks, long_calls = timing.run_blocks()
    timing.watch.finish()
    with resources.lane.exclusive():  # this times some costs of calls, and once per judge the bandwidth
        measurement = _measurement(session, timing, work, blocks, long_calls, began, before)
        peak_bytes_per_second = resources.peak_bytes_per_second
    _examine(session, measurement, timing, peak_bytes_per_second)
    resources.discard_exceeded_ceilings(measurement)
    return measurement


def _measurement(
    session: CandidateSession,
    timing: _InterleavedTiming | ShortBlockTiming,
    work: Work,
    blocks: list[schema.Block],
    long_calls: int,
    began_unix_ns: int,
    before: schema.DeviceState,
) -> schema.Measurement:
    """The measurement. ``long_calls``: calls of a long block."""
    resources = session.resources
    after = resources.probe.state()
    slowed = dict.fromkeys((*after.throttle_reasons, *timing.watch.slowed))
    return schema.Measurement(
        method=timing.method,
        blocks=tuple(blocks),
        began_unix_ns=began_unix_ns,
        ended_unix_ns=time.time_ns(),
        threads=resources.threads,
        distinct_inputs=long_calls,
        bytes_per_call=timing.reference_worker.layout.bytes_per_call,
        before=before,
        after=msgspec.structs.replace(after, throttle_reasons=tuple(slowed)),
        speed_of_light=resources.speed_of_light(work, _calls_in_a_row(blocks, long_calls), session.job.cache),
        uncaptured=timing.uncaptured,
        cache=session.job.cache,
        baseline=session.job.baseline,
        disturbances=timing.watch.disturbances,
        energy_millijoules=timing.watch.energy_millijoules,
        preparable_share=resources.preparable_share(timing.reference),
        differentiating_ns=_differentiating_ns(session.job.case, resources.device),
        relaying_ns=relaying_ns(timing.bound.layout, timing.bound.result_strides, resources.device),
    )


def _calls_in_a_row(blocks: list[schema.Block], long_calls: int) -> int:
    """Number of successive calls, each on other memory, to which the measured time per call refers.

    These are the calls of a long block. It is 1 if the reference was timed by repeating one call on the same memory.
    """
    return long_calls if repeated_call_ns(blocks) is None else 1


def _differentiating_ns(case: schema.Case, device: torch.device) -> float | None:
    """Time per call of autograd's graph alone, if the operator is a gradient; else None."""
    if not schema.is_gradient(case.operator):
        return None
    results = operators.tensor_count(case.args[0])
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case)[results:]]
    leaves = sum(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
    return gradient_operators.differentiating_ns(results, leaves, device)


class _InterleavedTiming:
    """Runs the blocks of one measurement on a GPU."""

    method = long_block_experiment.METHOD

    def __init__(
        self,
        session: CandidateSession,
        bound: BoundWorker,
        reference_worker: BoundWorker,
        shim_worker: BoundWorker,
        reference: Reference,
    ) -> None:
        self.reference_worker, self.reference = reference_worker, reference
        self._plan = long_block_experiment.TIMING_PLANS[session.job.effort]
        self._order = random.Random(secrets.randbits(64))
        self.bound = bound
        draws = FreshCalls(session, reference)
        sweep = session.resources.sweep_caches if session.job.cache == "cold" else None
        self._candidate_calls = CandidateCalls(session, bound, draws)
        self._call_parties: Parties = {
            "candidate": self._candidate_calls,
            "reference": ReferenceCalls(reference_worker, draws, pretend=False),
            "shim": ReferenceCalls(shim_worker, draws, pretend=True),
        }
        self._candidate_graphs = CandidateGraphs(session, bound, draws, sweep, chained=False)
        self._recordable: dict[schema.Party, CandidateGraphs | ReferenceGraphs] = {
            "candidate": self._candidate_graphs,
            "reference": ReferenceGraphs(reference_worker, draws, sweep, chained=False),
            "shim": ReferenceGraphs(shim_worker, draws, sweep, chained=False, pretend=True),
        }
        self._graph_parties: Parties = {**self._recordable}
        self._candidate_chain = CandidateGraphs(session, bound, draws, sweep, chained=True)
        self._chain_parties: Parties = {
            "candidate": self._candidate_chain,
            "reference": ReferenceGraphs(reference_worker, draws, sweep, chained=True),
            "shim": ReferenceGraphs(shim_worker, draws, sweep, chained=True, pretend=True),
        }
        if not bound.records_graphs:
            self._chain_parties = {
                "candidate": CandidateChain(session, bound, draws),
                "reference": ReferenceChain(reference_worker, draws, pretend=False),
                "shim": ReferenceChain(shim_worker, draws, pretend=True),
            }
        self._draws = draws
        self._known_call_ns, self._cache = session.resources.reference_call_ns, session.job.cache
        self._baseline = session.job.baseline
        self._probe, self._pids = (
            session.resources.probe,
            [each.worker.pid for each in (bound, reference_worker, shim_worker)],
        )
        self.watch: Watch
        """Observes the device since the first block. Set by :meth:`run_blocks`."""
        self.uncaptured: str | None = None if bound.records_graphs else ""

    @property
    def latencies_ns(self) -> list[int]:
        """How long the device took to answer the judge before each block of the candidate."""
        return (
            self._candidate_calls.latencies_ns
            + self._candidate_graphs.latencies_ns
            + self._candidate_chain.latencies_ns
        )

    def prepare(self) -> None:
        """Choose the values to plant. Record the graphs of long blocks, if the reference's call time is known.

        Without that time it is not known how many calls these blocks have.
        """
        self._draws.plan()
        call_ns = self._known_call_ns.get(self._key_of(self._graph_parties))
        if call_ns is None:
            return
        long_calls = long_block_experiment.long_block(call_ns, self.bound.sets, self._plan)
        with suppress(UncapturableError):  # hold() meets the same error and handles it
            for party in self._recordable.values():
                party.record(long_calls)

    def run_blocks(self) -> tuple[list[schema.Block], int]:
        """Run all blocks. Returns them, and how many calls a long one has."""
        self.watch = Watch(self._probe, self._pids)
        return self._blocks()

    def _blocks(self) -> tuple[list[schema.Block], int]:
        """Choose how calls are made (captured or one by one, and chained if they can be), and run the rounds."""
        if not self.bound.records_graphs and self.bound.sets > 1 and can_be_chained(self.bound, self._draws):
            lengths = self._lengths(self._call_parties)
            blocks = self._rounds(self._call_parties, lengths[1:])
            self._confirm_by_chains(blocks, lengths[1])
            return blocks, lengths[1]
        if not self.bound.records_graphs or not self._reference_can_be_captured():
            return self._time_calls()
        try:
            lengths = self._lengths(self._graph_parties)
        except UncapturableError as error:
            self.uncaptured = f"the candidate: {error}"
            return self._time_calls_against_graphs()
        if lengths[1] > 1 and self._draws.can_be_chained():
            blocks = self._rounds(self._graph_parties, lengths[1:])
            self._confirm_by_chains(blocks, lengths[1])
        else:
            blocks = self._rounds_with_confirmations(self._graph_parties, lengths)
        calls, rounds = self._calls_for_call_time(), self._plan.rounds // 2
        inspections = long_block_experiment.Inspections(rounds, self._candidate_calls.inspection)
        blocks += long_block_experiment.some_rounds(
            self._call_parties, (calls,), rounds, self._order, 1 + blocks[-1].round, inspections
        )
        return blocks, lengths[1]

    def _calls_for_call_time(self) -> int:
        """Calls in a block that shows the call time: few for large arguments, which take long to draw.

        Launching is a small part of the time of such calls, so a few of them are enough.
        """
        fitting = _MOST_BYTES_FOR_CALL_TIME // self.bound.layout.footprint_bytes
        return min(max(_LEAST_CALLS_FOR_CALL_TIME, min(_MOST_CALLS_FOR_CALL_TIME, fitting)), self.bound.sets)

    def _reference_can_be_captured(self) -> bool:
        """Whether reference and shim can be captured. Tried first: a candidate must not choose how a case is timed."""
        if self._key_of(self._graph_parties) in self._known_call_ns:
            return True
        try:
            for party in ("reference", "shim"):
                self._graph_parties[party].run(1)
        except UncapturableError as error:
            self.uncaptured = f"the reference: {error}"
            return False
        return True

    def _time_calls(self) -> tuple[list[schema.Block], int]:
        """Time calls that are not captured."""
        lengths = self._lengths(self._call_parties)
        return self._rounds_with_confirmations(self._call_parties, lengths), lengths[1]

    def _lengths(self, parties: Parties) -> tuple[int, int]:
        """Calls of a short block and of a long one. The reference's call time is measured once per case and judge."""
        known, key = self._known_call_ns, self._key_of(parties)
        if key not in known:
            known[key] = long_block_experiment.reference_call_ns(parties, self.bound.sets)
        return long_block_experiment.block_lengths(parties, self.bound.sets, self._plan, known[key])

    def _key_of(self, parties: Parties) -> str:
        return schema.content_key(self.reference.case, parties["reference"].way, self._cache, self._baseline)

    def _time_calls_against_graphs(self) -> tuple[list[schema.Block], int]:
        """Time a candidate that cannot be captured: its call time is compared with the reference's device time.

        So the launches count in the candidate's time and not in the reference's: to refuse capture is never an
        advantage.
        """
        blocks, long_calls = self._time_calls()
        other_parties: Parties = {party: runs for party, runs in self._graph_parties.items() if party != "candidate"}
        count = len({block.round for block in blocks if block.calls == long_calls})
        return blocks + long_block_experiment.some_rounds(
            other_parties, (long_calls,), count, self._order, 1 + blocks[-1].round
        ), long_calls

    def _confirm_by_chains(self, blocks: list[schema.Block], long_calls: int) -> None:
        """Add rounds of chained calls, each of which waits for the one before, if the speed needs confirmation."""
        if not needs_confirmation(blocks):
            return
        calls = min(long_calls, _MOST_CALLS_IN_CHAIN)
        with suppress(UncapturableError):  # then it stays unconfirmed
            for party in self._chain_parties.values():
                party.run(calls)
            long_block_experiment.confirmations(
                self._chain_parties, blocks, calls, self._plan, self._order, needs_confirmation
            )

    def _rounds_with_confirmations(self, parties: Parties, lengths: tuple[int, int]) -> list[schema.Block]:
        """Run the rounds, then further rounds of single calls as long as the speed needs confirmation."""
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
        """The candidate's inspected blocks. Chained calls have none: their arguments come from earlier results."""
        candidate = self._candidate_calls if parties is self._call_parties else self._candidate_graphs
        return long_block_experiment.Inspections(self._plan.rounds, candidate.inspection)


def _examine(
    session: CandidateSession,
    measurement: schema.Measurement,
    timing: _InterleavedTiming | ShortBlockTiming,
    peak_bytes_per_second: float,
) -> None:
    """Run every guard on the measurement. Raises VerdictError with the first proof."""

    def latencies_without_candidate_ns() -> Iterator[int]:
        session.dismiss()
        for _ in range(_LATENCIES_WITHOUT_CANDIDATE):
            yield timing.reference_worker.device_latency_ns()
            time.sleep(_SECONDS_BETWEEN_LATENCIES)

    guards: list[Guard] = [
        QuiescenceGuard(timing.latencies_ns, latencies_without_candidate_ns),
        ClockGuard(),
        FloorGuard(timing.reference_worker.layout.written_bytes, peak_bytes_per_second),
    ]
    for guard in guards:
        verdict = guard.examine(measurement)
        if verdict is not None:
            raise VerdictError(verdict)
