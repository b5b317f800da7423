"""The reference once more, when the candidate is gone: what a speed is held against.

While the reference is timed every thread of the candidate stands still. But the system may go on working for it: timers
that it has set, memory that it has given back, interrupts on its behalf. Whatever that is, it ends with its processes,
and nothing that is left can make the reference look slow. So where a speed rests on the judge's clock, the candidate is
dismissed in the end, the reference is timed again, and the speed counts as far as that bears it out.
"""

from __future__ import annotations

import random
import secrets

import msgspec

from torchstone import schema
from torchstone.court.contest import Parties, own_stand
from torchstone.court.hearing import Hearing
from torchstone.court.parties import Draws, ReferenceCalls, ReferenceGraphs
from torchstone.court.stand import Stand
from torchstone.judging import Reference
from torchstone.measuring import procedure, rests_on_the_judges_clock

_LEAST_ROUNDS, _MOST_ROUNDS = 5, 15


def with_reference_alone(
    hearing: Hearing, stand: Stand, reference: Reference, measurement: schema.Measurement
) -> schema.Measurement:
    """The measurement with such blocks where its speed needs them. The candidate must have left the stand.

    Between its blocks the reference is called in another worker of ours as well, where the candidate was called
    before: otherwise it would find its caches as nobody had touched them.
    """
    if not rests_on_the_judges_clock(measurement):
        return measurement
    hearing.dismiss()
    room, job = hearing.room, hearing.job
    captured = any(block.way == "captured" for block in measurement.blocks if block.party == "reference")
    with own_stand(hearing, stand, "reference") as own, own_stand(hearing, stand, "shim") as blank:
        room.pool.settle()
        with room.lane.exclusive(), hearing.in_stage("measure", job.deadlines.measure_seconds):
            draws = Draws(hearing, reference)
            parties = _played(hearing, draws, own, blank) if captured else _called(draws, own, blank)
            if captured:
                draws.series(measurement.distinct_inputs, "captured").draw_unevaluated(secrets.randbits(63))
            return _extended(measurement, parties)


def _called(draws: Draws, own: Stand, blank: Stand) -> Parties:
    return {
        "candidate": ReferenceCalls(blank, draws, pretend=False),
        "reference": ReferenceCalls(own, draws, pretend=False),
        "shim": ReferenceCalls(blank, draws, pretend=True),
    }


def _played(hearing: Hearing, draws: Draws, own: Stand, blank: Stand) -> Parties:
    sweep = hearing.room.sweep_caches if hearing.job.cache == "cold" else None
    return {
        "reference": ReferenceGraphs(own, draws, sweep, chained=False),
        "shim": ReferenceGraphs(blank, draws, sweep, chained=False, pretend=True),
    }


def _extended(measurement: schema.Measurement, parties: Parties) -> schema.Measurement:
    long = measurement.distinct_inputs
    taken = {block.round for block in measurement.blocks if block.calls == long and block.party == "reference"}
    count = min(max(_LEAST_ROUNDS, len(taken)), _MOST_ROUNDS)
    first = 1 + max(block.round for block in measurement.blocks)
    blocks = procedure.some_rounds(parties, (long,), count, random.Random(secrets.randbits(64)), first)
    kept = [msgspec.structs.replace(block, way="alone") for block in blocks if block.party != "candidate"]
    return msgspec.structs.replace(measurement, blocks=(*measurement.blocks, *kept))
