"""The reference timed without the candidate, before it is loaded and after it is gone, to confirm a speed.

While the reference is timed, every thread of the candidate stands still. But the system may still work for the
candidate: timers that it has set, memory that it has given back, interrupts on its behalf. Nearly all of that ends
with its processes. So if a speed rests on the judge's clock, the candidate is dismissed in the end and the reference
is timed again. The speed counts only as far as that confirms it.

What remains is the system's own work to free the processes (``idle_cores.py``). So the processes must be proved to
have ended, and the workers' cores must be idle before the reference is timed and a few rounds later. Otherwise these
rounds do not count. A speed that cannot be compared with a reference alone is not confirmed.

A candidate cannot influence what ended before it was loaded. So on the CPU the reference is also timed before that,
and the speed counts only as far as that confirms it. A candidate that is already loaded, because it was judged on
another case, is loaded again for its speed.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from torchstone import schema
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.idle_cores import IdleCores
from torchstone.judge_process.interleaved_timing import Parties, own_bound_worker
from torchstone.judge_process.participants import FreshCalls, ReferenceCalls, ReferenceGraphs
from torchstone.judging import Reference
from torchstone.measuring import procedure, rests_on_the_judges_clock

_LEAST_ROUNDS, _MOST_ROUNDS = 5, 15
_ROUNDS_BETWEEN_LOOKS = 3
_MOST_TRIES = 3
"""For as many rounds as there are between two looks."""
_ROUNDS_BEFOREHAND = 5


class CameTooSoonError(Exception):
    """A candidate is fast, and was there before its reference was timed: it has to come again."""


class Beforehand(NamedTuple):
    """What is known of the reference from before the candidate came."""

    blocks: tuple[schema.Block, ...] = ()
    too_late: bool = False
    """The candidate was there already."""


def reference_beforehand(session: CandidateSession, layout: CallLayout, sets: int, reference: Reference) -> Beforehand:
    """Time the reference, unless a device has a clock of its own. The candidate must not have been asked for yet.

    The previous candidate is dismissed first: it may cooperate with this one.
    """
    room, job = session.room, session.job
    if room.device.type != "cpu":
        return Beforehand()
    if room.has_loaded(job.implementation):
        return Beforehand(too_late=True)
    room.dismiss_candidate()
    plan, order = procedure.TIMING_PLANS[job.effort], random.Random(secrets.randbits(64))
    with (
        own_bound_worker(session, layout, sets, "reference") as own,
        own_bound_worker(session, layout, sets, "shim") as blank,
    ):
        room.pool.settle()
        with room.lane.exclusive(), session.in_stage("measure", job.deadlines.measure_seconds):
            parties = _called(FreshCalls(session, reference), own, blank)
            _, long = procedure.block_lengths(parties, sets, plan, procedure.reference_call_ns(parties, sets))
            blocks = procedure.some_rounds(parties, (long,), _ROUNDS_BEFOREHAND, order, 0)
    return Beforehand(_kept(blocks, "beforehand"))


def with_reference_alone(
    session: CandidateSession,
    bound: BoundWorker,
    reference: Reference,
    measurement: schema.Measurement,
    before: Beforehand,
) -> schema.Measurement:
    """The measurement with such blocks, if its speed needs them. The candidate must have been dismissed.

    Between its blocks the reference is also called in another worker, as the candidate was before. Otherwise it would
    find its caches untouched.
    """
    if not rests_on_the_judges_clock(measurement):
        return measurement
    if before.too_late:
        raise CameTooSoonError
    if not session.dismiss():
        return _never_alone(measurement, "processes of the candidate's had not ended long after they were killed")
    room, job = session.room, session.job
    captured = any(block.way == "captured" for block in measurement.blocks if block.party == "reference")
    given = bound.layout, bound.sets
    with own_bound_worker(session, *given, "reference") as own, own_bound_worker(session, *given, "shim") as blank:
        room.pool.settle()
        with room.lane.exclusive(), session.in_stage("measure", job.deadlines.measure_seconds):
            draws = FreshCalls(session, reference)
            parties = _played(session, draws, own, blank) if captured else _called(draws, own, blank)
            if captured:
                draws.series(measurement.distinct_inputs, "captured").draw_unevaluated(secrets.randbits(63))
            blocks = _rounds(measurement, parties, IdleCores(own.worker.cores))
    if blocks is None:
        return _never_alone(measurement, "the workers' cores did not become quiet after the candidate's end")
    held_against = *before.blocks, *_kept(blocks, "alone")
    return msgspec.structs.replace(measurement, blocks=(*measurement.blocks, *held_against))


def _kept(blocks: Sequence[schema.Block], way: schema.Way) -> tuple[schema.Block, ...]:
    return tuple(msgspec.structs.replace(block, way=way) for block in blocks if block.party != "candidate")


def _never_alone(measurement: schema.Measurement, reason: str) -> schema.Measurement:
    return msgspec.structs.replace(measurement, never_alone=reason)


def _called(draws: FreshCalls, own: BoundWorker, blank: BoundWorker) -> Parties:
    return {
        "candidate": ReferenceCalls(blank, draws, pretend=False),
        "reference": ReferenceCalls(own, draws, pretend=False),
        "shim": ReferenceCalls(blank, draws, pretend=True),
    }


def _played(session: CandidateSession, draws: FreshCalls, own: BoundWorker, blank: BoundWorker) -> Parties:
    sweep = session.room.sweep_caches if session.job.cache == "cold" else None
    return {
        "reference": ReferenceGraphs(own, draws, sweep, chained=False),
        "shim": ReferenceGraphs(blank, draws, sweep, chained=False, pretend=True),
    }


def _rounds(measurement: schema.Measurement, parties: Parties, quiet: IdleCores) -> list[schema.Block] | None:
    """As many as in the contest, or nearly, each between two looks that found the cores quiet. None: too few of them.

    To leave a round out can only make the reference look quicker, and nobody is there any more who could choose it.
    """
    long = measurement.distinct_inputs
    taken = {block.round for block in measurement.blocks if block.calls == long and block.party == "reference"}
    count = min(max(_LEAST_ROUNDS, len(taken)), _MOST_ROUNDS)
    first = 1 + max(block.round for block in measurement.blocks)
    order, kept = random.Random(secrets.randbits(64)), list[schema.Block]()
    for begin in range(first, first + count, _ROUNDS_BETWEEN_LOOKS):
        some = min(_ROUNDS_BETWEEN_LOOKS, first + count - begin)
        for _ in range(_MOST_TRIES):
            if not quiet.comes():
                return None
            blocks = procedure.some_rounds(parties, (long,), some, order, begin)
            if quiet.is_there():
                kept += blocks
                break
        else:
            return None
    return kept
