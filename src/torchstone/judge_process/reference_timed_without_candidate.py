"""Times the reference while no candidate runs, before it is loaded and after it has ended, to confirm a speedup.

While the reference is timed, every thread of the candidate stands still. But the system may still work for the
candidate: timers that it has set, memory that it has given back, interrupts on its behalf. Nearly all of that ends
with its processes. So if a speed rests on the judge's clock, the candidate is dismissed in the end and the reference
is timed again. The speed counts only as far as that confirms it.

What remains is the system's own work to free the processes (``leftover_work.py``). So the processes must be proved to
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
from torchstone.judge_process.interleaved_timing import Parties, own_bound_worker
from torchstone.judge_process.leftover_work import IdleCores
from torchstone.judge_process.measured_parties import FreshCalls, ReferenceCalls, ReferenceGraphs
from torchstone.judge_process.short_block_timing import (
    BurstDraws,
    alone_in,
    known_reference_ns,
    most_calls,
    own_parties,
    timed,
)
from torchstone.judging import Reference
from torchstone.measuring import (
    long_block_experiment,
    needs_reference_alone,
    rests_on_the_judges_clock,
    short_block_experiment,
    short_blocks,
)

_LEAST_ROUNDS, _MOST_ROUNDS = 5, 15
_ROUNDS_BETWEEN_LOOKS = 3
_MOST_TRIES = 3
"""For as many rounds as there are between two looks."""
_LEAST_PAIRS = 8
"""Of short blocks, on the CPU."""


class CameTooSoonError(Exception):
    """A candidate is fast, and was there before its reference was timed: it has to come again."""


class Beforehand(NamedTuple):
    """What is known of the reference from before the candidate came."""

    blocks: tuple[schema.Block, ...] = ()
    too_late: bool = False
    """The candidate was there already."""


def reference_beforehand(session: CandidateSession, layout: CallLayout, sets: int, reference: Reference) -> Beforehand:
    """Time the reference, on the CPU only: a GPU has a clock of its own. The candidate must not be loaded yet.

    The previous candidate is dismissed first: it may cooperate with this one.
    """
    room, job = session.room, session.job
    if room.device.type != "cpu":
        return Beforehand()
    if room.has_loaded(job.implementation):
        return Beforehand(too_late=True)
    room.dismiss_candidate()
    plan, order = short_block_experiment.SHORT_BLOCK_PLANS[job.effort], random.Random(secrets.randbits(64))
    with (
        own_bound_worker(session, layout, sets, "reference") as own,
        own_bound_worker(session, layout, sets, "shim") as blank,
    ):
        room.pool.settle()
        alone = alone_in(room.lane)
        with session.clock.in_stage("measure", job.deadlines.measure_seconds):
            parties = own_parties(BurstDraws(FreshCalls(session, reference)), own, blank)
            with timed((own, blank), job.cache, by_core_time=True):
                most = most_calls(own, job.cache)
                with alone.held():
                    reference_ns = known_reference_ns(session, reference.case, parties, most)
                calls = short_block_experiment.calls_of_reference(most, plan, reference_ns)
                blocks = short_block_experiment.some_pairs(parties, calls, _pairs_alone(plan), order, 0, alone)
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
    by_short_blocks = measurement.method == short_blocks.METHOD
    if not (needs_reference_alone if by_short_blocks else rests_on_the_judges_clock)(measurement):
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
        with room.lane.exclusive(), session.clock.in_stage("measure", job.deadlines.measure_seconds):
            draws, cores = FreshCalls(session, reference), IdleCores(own.worker.cores)
            if by_short_blocks:
                blocks: list[schema.Block] | None = _short_blocks(session, draws, measurement, (own, blank), cores)
            else:
                parties = _played(session, draws, own, blank) if captured else _called(draws, own, blank)
                if captured:
                    draws.series(measurement.distinct_inputs, "captured").draw_unevaluated(secrets.randbits(63))
                blocks = _rounds(measurement, parties, cores)
    if blocks is None:
        return _never_alone(measurement, "the workers' cores did not become quiet after the candidate's end")
    held_against = *before.blocks, *_kept(blocks, "alone")
    return msgspec.structs.replace(measurement, blocks=(*measurement.blocks, *held_against))


def _short_blocks(
    session: CandidateSession,
    draws: FreshCalls,
    measurement: schema.Measurement,
    workers: tuple[BoundWorker, BoundWorker],
    quiet: IdleCores,
) -> list[schema.Block]:
    """As many pairs as before the candidate came, once the cores are quiet, or as long as that is waited for.

    On a busy machine they never are. But what the candidate has left is over by then. The lowest third of blocks does
    not see what has a core for a part of the time.
    """
    quiet.comes()
    plan, order = short_block_experiment.SHORT_BLOCK_PLANS[session.job.effort], random.Random(secrets.randbits(64))
    first = 1 + max(block.round for block in measurement.blocks)
    parties = own_parties(BurstDraws(draws), *workers)
    with timed(workers, session.job.cache, by_core_time=True):
        return short_block_experiment.some_pairs(parties, measurement.distinct_inputs, _pairs_alone(plan), order, first)


def _pairs_alone(plan: short_block_experiment.ShortBlockPlan) -> int:
    return max(_LEAST_PAIRS, plan.pairs // 2)


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
            blocks = long_block_experiment.some_rounds(parties, (long,), some, order, begin)
            if quiet.is_there():
                kept += blocks
                break
        else:
            return None
    return kept
