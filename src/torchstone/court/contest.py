"""The contest: candidate, reference and shim called in turn on the device that they have to themselves.

In which order and how often is the procedure's affair (``measuring/procedure.py``); here is who the parties are.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time

from torchstone import schema
from torchstone.court.guards import ClockGuard, FloorGuard, Guard, QuiescenceGuard
from torchstone.court.hearing import FAILURES, HOUSEKEEPING_SECONDS, Hearing, VerdictError
from torchstone.court.layout import Layout
from torchstone.court.stand import Stand
from torchstone.judging import DrawnCall, Expected, Reference, Work
from torchstone.measuring import is_precise_enough, needs_confirmation, procedure
from torchstone.workers.protocol import Load


class ReferenceLostError(Exception):
    """The reference's worker failed: nothing that a candidate could have done."""


def measure(hearing: Hearing, stand: Stand, reference: Reference, work: Work) -> schema.Measurement:
    """Time the candidate on its stand against the reference, and ask every guard about the figures."""
    room, job = hearing.room, hearing.job
    other = _reference_stand(hearing, stand.layout, stand.sets)
    try:
        room.pool.settle()
        with room.lane.exclusive(), hearing.in_stage("measure", job.deadlines.measure_seconds):
            measurement = _measure_rounds(hearing, stand, other, reference, work)
        other.release(time.monotonic() + HOUSEKEEPING_SECONDS)
    except BaseException:
        room.dismiss_reference()
        raise
    finally:
        other.close()
    return measurement


def _reference_stand(hearing: Hearing, layout: Layout, sets: int) -> Stand:
    """The reference on its own stand. Its failures are ours, not the candidate's."""
    room, case = hearing.room, hearing.job.case
    deadline = time.monotonic() + HOUSEKEEPING_SECONDS
    native = schema.Implementation("aten", case.operator, schema.ImportPath("torch", f"ops.{case.operator}"), "aten")
    worker = room.reference_worker()
    stand = Stand(worker, case, layout, sets, room.device)
    try:
        worker.ask(Load(secrets.token_hex(8), native), deadline)
        stand.bind(deadline)
    except FAILURES as error:
        room.dismiss_reference()
        stand.close()
        raise ReferenceLostError(f"the reference's worker failed: {error!r}") from error
    return stand


def _measure_rounds(
    hearing: Hearing, stand: Stand, other: Stand, reference: Reference, work: Work
) -> schema.Measurement:
    room, plan = hearing.room, procedure.PLANS[hearing.job.effort]
    draws = _Draws(hearing, reference)
    candidate = _CandidateRuns(hearing, stand, draws)
    contestants: dict[schema.Party, procedure.Contestant] = {
        "candidate": candidate,
        "reference": _ReferenceRuns(other, draws, pretend=False),
        "shim": _ReferenceRuns(other, draws, pretend=True),
    }
    began, before = time.time_ns(), room.probe.state()
    lengths = procedure.block_lengths(contestants, stand.sets, plan)
    order = random.Random(secrets.randbits(64))
    blocks = procedure.rounds(contestants, lengths, plan, order, is_precise_enough)
    procedure.confirmations(contestants, blocks, plan, order, needs_confirmation)
    measurement = schema.Measurement(
        method=procedure.METHOD,
        blocks=tuple(blocks),
        began_unix_ns=began,
        ended_unix_ns=time.time_ns(),
        threads=room.threads,
        distinct_inputs=lengths[1],
        bytes_per_call=stand.layout.bytes_per_call,
        before=before,
        after=room.probe.state(),
        speed_of_light=room.speed_of_light(work, lengths[1]),
    )
    _examine(hearing, measurement, candidate, other)
    room.doubt_ceilings(measurement)
    return measurement


def _examine(hearing: Hearing, measurement: schema.Measurement, candidate: _CandidateRuns, other: Stand) -> None:
    """Ask every guard; the first that proves something decides."""

    def latency_without_candidate_ns() -> float:
        hearing.dismiss()
        return statistics.median(other.device_latency_ns() for _ in range(9))

    written_bytes = other.layout.written_bytes
    guards: list[Guard] = [
        QuiescenceGuard(candidate.latencies_ns, latency_without_candidate_ns),
        ClockGuard(),
        FloorGuard(written_bytes, hearing.room.peak_bytes_per_second),
    ]
    for guard in guards:
        proof = guard.examine(measurement)
        if proof is not None:
            raise VerdictError(proof)


class _Draws:
    """Calls for the parties of one measurement.

    The candidate gets values that nobody has seen; the reference and the shim, which have nothing to gain, get the
    candidate's last ones again: drawing costs more than calling.
    """

    def __init__(self, hearing: Hearing, reference: Reference) -> None:
        self._hearing, self._reference = hearing, reference
        self._last: dict[int, list[DrawnCall]] = {}

    def fresh(self, calls: int) -> tuple[list[DrawnCall], list[Expected]]:
        drawn, expected = self._hearing.draw(self._reference, calls, calibrate=False)
        self._last[calls] = drawn
        return drawn, expected

    def again(self, calls: int) -> list[DrawnCall]:
        if calls not in self._last:
            self.fresh(calls)
        return self._last[calls]


class _CandidateRuns:
    """The candidate as a contestant: every timed call has fresh values and a verified result."""

    def __init__(self, hearing: Hearing, stand: Stand, draws: _Draws) -> None:
        self._hearing, self._stand, self._draws = hearing, stand, draws
        self.latencies_ns: list[int] = []
        self._ready: dict[int, tuple[list[DrawnCall], list[Expected]]] = {}

    def prepare(self, lengths: tuple[int, ...]) -> None:
        self._ready = {calls: self._draws.fresh(calls) for calls in lengths}

    def run(self, calls: int) -> tuple[int, int]:
        drawn, expected = self._ready.pop(calls) if calls in self._ready else self._draws.fresh(calls)
        if self._stand.on_device:
            self.latencies_ns.append(self._stand.device_latency_ns())
        return self._hearing.call_and_verify(self._stand, drawn, expected)


class _ReferenceRuns:
    """The reference, or the shim alone, on values of the same kind."""

    def __init__(self, stand: Stand, draws: _Draws, pretend: bool) -> None:
        self._stand, self._draws, self._pretend = stand, draws, pretend

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """The candidate's draws serve."""

    def run(self, calls: int) -> tuple[int, int]:
        self._stand.present(self._draws.again(calls))
        try:
            testimony = self._stand.time(calls, time.monotonic() + HOUSEKEEPING_SECONDS, self._pretend)
        except FAILURES as error:
            raise ReferenceLostError(f"the reference's worker failed: {error!r}") from error
        return testimony.elapsed_ns, testimony.done.claimed_ns
