"""Times the reference while no candidate runs, before it is loaded and after it has ended, to confirm a speedup.

While the reference is timed, every thread of the candidate is paused. But the system may still work for the candidate:
timers that it has set, memory that it has freed, interrupts. Nearly all of that ends with its processes. So if a
speedup depends on the judge's clock, the candidate is ended after the rounds and the reference is timed again. The
speedup counts only as far as that confirms it.

What remains is the system's own work to free the processes (``leftover_work.py``). So the processes must have ended.
The workers' cores must be idle before the reference is timed and after a few rounds; otherwise these rounds do not
count. A speedup that cannot be compared with such rounds is not confirmed.

A candidate cannot influence times that were measured before it was loaded. So on the CPU the reference is also timed
before that, and the speedup counts only as far as that confirms it. A candidate that is already loaded, because it was
judged on another case, is loaded again for this.
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
"""Fewest and most rounds with the reference alone."""
_ROUNDS_BETWEEN_TESTS = 3
"""Rounds between two tests whether the cores are idle."""
_MOST_ATTEMPTS = 3
"""Most attempts at the rounds between two tests."""
_LEAST_PAIRS = 8
"""Fewest pairs of short blocks, on the CPU."""


class LoadedTooEarlyError(Exception):
    """A fast candidate was loaded before its reference was timed: the job must be repeated with a new worker."""


class Beforehand(NamedTuple):
    """Blocks of the reference and the shim from before the candidate was loaded."""

    blocks: tuple[schema.Block, ...] = ()
    already_loaded: bool = False
    """The candidate was already loaded, so there are no blocks."""


def reference_beforehand(session: CandidateSession, layout: CallLayout, sets: int, reference: Reference) -> Beforehand:
    """Time the reference before the candidate is loaded. On the CPU only: a GPU has a clock of its own.

    The previous candidate is ended first, because it may cooperate with this one.
    """
    resources, job = session.resources, session.job
    if resources.device.type != "cpu":
        return Beforehand()
    if resources.has_loaded(job.implementation):
        return Beforehand(already_loaded=True)
    resources.dismiss_candidate()
    plan, order = short_block_experiment.SHORT_BLOCK_PLANS[job.effort], random.Random(secrets.randbits(64))
    with (
        own_bound_worker(session, layout, sets, "reference") as reference_worker,
        own_bound_worker(session, layout, sets, "shim") as shim_worker,
    ):
        resources.pool.settle()
        alone = alone_in(resources.lane)
        with session.clock.in_stage("measure", job.deadlines.measure_seconds):
            parties = own_parties(BurstDraws(FreshCalls(session, reference)), reference_worker, shim_worker)
            with timed((reference_worker, shim_worker), job.cache, by_core_time=True):
                most = most_calls(reference_worker, job.cache)
                with alone.acquire():
                    reference_ns = known_reference_ns(session, reference.case, parties, most)
                calls = short_block_experiment.calls_of_reference(most, plan, reference_ns)
                blocks = short_block_experiment.some_pairs(parties, calls, _pairs_alone(plan), order, 0, alone)
    return Beforehand(_relabelled(blocks, "beforehand"))


def with_reference_alone(
    session: CandidateSession,
    bound: BoundWorker,
    reference: Reference,
    measurement: schema.Measurement,
    before: Beforehand,
) -> schema.Measurement:
    """The measurement with blocks of the reference alone, if its speedup needs them. Ends the candidate first.

    Between these blocks another worker calls the reference, as the candidate did before. Otherwise the reference would
    find its data in the caches.
    """
    by_short_blocks = measurement.method == short_blocks.METHOD
    if not (needs_reference_alone if by_short_blocks else rests_on_the_judges_clock)(measurement):
        return measurement
    if before.already_loaded:
        raise LoadedTooEarlyError
    if not session.dismiss():
        return _unconfirmed(measurement, "processes of the candidate had not ended long after they were killed")
    resources, job = session.resources, session.job
    captured = any(block.way == "captured" for block in measurement.blocks if block.party == "reference")
    layout_and_sets = bound.layout, bound.sets
    with (
        own_bound_worker(session, *layout_and_sets, "reference") as reference_worker,
        own_bound_worker(session, *layout_and_sets, "shim") as shim_worker,
    ):
        resources.pool.settle()
        with resources.lane.exclusive(), session.clock.in_stage("measure", job.deadlines.measure_seconds):
            draws, cores = FreshCalls(session, reference), IdleCores(reference_worker.worker.cores)
            if by_short_blocks:
                blocks: list[schema.Block] | None = _short_blocks(
                    session, draws, measurement, (reference_worker, shim_worker), cores
                )
            else:
                parties = (
                    _graph_parties(session, draws, reference_worker, shim_worker)
                    if captured
                    else _call_parties(draws, reference_worker, shim_worker)
                )
                if captured:
                    draws.series(measurement.distinct_inputs, "captured").draw_unevaluated(secrets.randbits(63))
                blocks = _rounds(measurement, parties, cores)
    if blocks is None:
        return _unconfirmed(measurement, "the workers' cores did not become quiet after the candidate's end")
    reference_blocks = *before.blocks, *_relabelled(blocks, "alone")
    return msgspec.structs.replace(measurement, blocks=(*measurement.blocks, *reference_blocks))


def _short_blocks(
    session: CandidateSession,
    draws: FreshCalls,
    measurement: schema.Measurement,
    workers: tuple[BoundWorker, BoundWorker],
    idle_cores: IdleCores,
) -> list[schema.Block]:
    """As many pairs as before the candidate was loaded, once the cores are idle or the time for waiting is over.

    On a busy machine the cores are never idle, but work that the candidate has left has ended by then. The lowest third
    of blocks counts, which does not contain work that has a core for part of the time only.
    """
    idle_cores.wait_until_idle()
    plan, order = short_block_experiment.SHORT_BLOCK_PLANS[session.job.effort], random.Random(secrets.randbits(64))
    first = 1 + max(block.round for block in measurement.blocks)
    parties = own_parties(BurstDraws(draws), *workers)
    with timed(workers, session.job.cache, by_core_time=True):
        return short_block_experiment.some_pairs(parties, measurement.distinct_inputs, _pairs_alone(plan), order, first)


def _pairs_alone(plan: short_block_experiment.ShortBlockPlan) -> int:
    return max(_LEAST_PAIRS, plan.pairs // 2)


def _relabelled(blocks: Sequence[schema.Block], way: schema.Way) -> tuple[schema.Block, ...]:
    return tuple(msgspec.structs.replace(block, way=way) for block in blocks if block.party != "candidate")


def _unconfirmed(measurement: schema.Measurement, reason: str) -> schema.Measurement:
    return msgspec.structs.replace(measurement, never_alone=reason)


def _call_parties(draws: FreshCalls, reference_worker: BoundWorker, shim_worker: BoundWorker) -> Parties:
    return {
        "candidate": ReferenceCalls(shim_worker, draws, pretend=False),
        "reference": ReferenceCalls(reference_worker, draws, pretend=False),
        "shim": ReferenceCalls(shim_worker, draws, pretend=True),
    }


def _graph_parties(
    session: CandidateSession, draws: FreshCalls, reference_worker: BoundWorker, shim_worker: BoundWorker
) -> Parties:
    sweep = session.resources.sweep_caches if session.job.cache == "cold" else None
    return {
        "reference": ReferenceGraphs(reference_worker, draws, sweep, chained=False),
        "shim": ReferenceGraphs(shim_worker, draws, sweep, chained=False, pretend=True),
    }


def _rounds(measurement: schema.Measurement, parties: Parties, idle_cores: IdleCores) -> list[schema.Block] | None:
    """About as many rounds as in the measurement, each between two tests that found the cores idle.

    None: the cores were not idle often enough. To leave a round out can only make the reference look quicker, and the
    candidate cannot choose which one, because it has ended.
    """
    long = measurement.distinct_inputs
    measured_rounds = {
        block.round for block in measurement.blocks if block.calls == long and block.party == "reference"
    }
    count = min(max(_LEAST_ROUNDS, len(measured_rounds)), _MOST_ROUNDS)
    first = 1 + max(block.round for block in measurement.blocks)
    order, kept = random.Random(secrets.randbits(64)), list[schema.Block]()
    for begin in range(first, first + count, _ROUNDS_BETWEEN_TESTS):
        some = min(_ROUNDS_BETWEEN_TESTS, first + count - begin)
        for _ in range(_MOST_ATTEMPTS):
            if not idle_cores.wait_until_idle():
                return None
            blocks = long_block_experiment.some_rounds(parties, (long,), some, order, begin)
            if idle_cores.are_idle():
                kept += blocks
                break
        else:
            return None
    return kept
