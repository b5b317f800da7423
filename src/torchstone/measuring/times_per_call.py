"""Computes times per call, a row for each round of timed blocks: which blocks decide, and what overhead is subtracted.

The time of a call is the time of a long block minus the shim's, per call. Not the slope between a long block and a
single call: a candidate could shrink that by slow single calls.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchstone.measuring.trimmed_means import trimmed_mean
from torchstone.schema import Block, Party

Floats = NDArray[np.float64]

Clocked = Literal["device", "calls", "calls against device"]
"""`device`: both parties captured, launches are not timed. `calls`: neither captured. `calls against device`: only the
candidate could not be captured, so its launches count and the reference's do not."""


_IN_DOUBT = 2.0
"""Standard errors up to which a difference counts as chance."""
NOTHING = (0.0, 0.0)
"""No speed is confirmed: as if the reference had taken no time when the candidate was gone."""


class PerCall(NamedTuple):
    """Nanoseconds per call; columns candidate and reference, one row a round."""

    gross: Floats
    net: Floats
    """Minus the shim."""
    shim_ns: float
    """Median of what was subtracted from the candidate's."""
    clocked: Clocked
    shims: Floats
    """What was subtracted from the candidate's, one value a round."""
    claimed: Floats | None = None
    """Times by the device's clock, as the workers report them: for captured calls only."""
    charged: Floats | None = None
    """The candidate's alone, for calls made one by one: its time minus only the overhead that it cannot avoid.

    Most of the shim runs in the worker's process, where a candidate can be faster than our code. So it is subtracted to
    report a time, but not to decide `faster`. The shim's worker, which holds no candidate, says how much it is."""


def per_call(blocks: Sequence[Block]) -> PerCall:
    """The times that decide, for the rounds in which both parties were measured."""
    graphs = [block for block in blocks if block.way == "captured"]
    calls = [block for block in blocks if block.way == "called"]
    captured = {block.party for block in graphs}
    if {"candidate", "reference"} <= captured:
        claims = paired([msgspec.structs.replace(block, elapsed_ns=block.claimed_ns) for block in graphs])
        return _steadied(paired(less_revealing(graphs)))._replace(clocked="device", claimed=claims.net)
    if "reference" in captured:
        return _side_by_side(calls, less_revealing(graphs))
    return _charging(paired(calls), calls)


def _charging(times: PerCall, blocks: Sequence[Block]) -> PerCall:
    own = [msgspec.structs.replace(block, elapsed_ns=block.claimed_ns) for block in blocks if block.party == "shim"]
    return times._replace(charged=times.net[:, 0] + _median(_shims(_rounds(own))))


def ratio_alone(blocks: Sequence[Block]) -> tuple[float, float] | None:
    """The reference's time without the candidate, divided by the candidate's, and the lower end of that ratio.

    The smaller of two: before the candidate was loaded, if known, and after it had ended. None: it was not timed then.
    Each time is minus the shim's of its own moment. A candidate can make the shim look long, so what is subtracted from
    its time is no more than the shim without it. If nothing of its time is left, no speed is confirmed.
    """
    if not any(block.way == "alone" for block in blocks):
        return None
    moments = [[block for block in blocks if block.way == way] for way in ("alone", "beforehand")]
    found = [_ratio_without(moment, per_call(blocks)) for moment in moments if moment]
    return min(ratio for ratio, _ in found), min(surely for _, surely in found)


def _ratio_without(blocks: Sequence[Block], times: PerCall) -> tuple[float, float]:
    """Of blocks of one moment without the candidate, against its times."""
    (reference, doubt), (shim, of_shim) = (
        trimmed_mean(np.array([b.elapsed_ns / b.calls for b in less_revealing(blocks) if b.party == party]))
        for party in ("reference", "shim")
    )
    if times.clocked == "calls against device":  # of two kinds of block, each with a shim of its own
        own = float(np.median(times.net[:, 0]))
    else:
        own = float(np.median(times.gross[:, 0])) - min(shim, times.shim_ns)
    if own <= 0:
        return NOTHING
    return (reference - shim) / own, (reference - shim - _IN_DOUBT * math.hypot(doubt, of_shim)) / own


def least_reference_ns(blocks: Sequence[Block]) -> float | None:
    """The reference's least time per call in long blocks of calls made one by one: with the candidate, before or after.

    None: there are no such blocks.
    """
    found = []
    for way in ("called", "alone", "beforehand"):
        rounds = _rounds([block for block in blocks if block.way == way])
        own = [parties["reference"] for parties in rounds if "reference" in parties]
        if own:
            found.append(float(np.median(own)) - _median(_shims(rounds)))
    return min(found, default=None)


def less_revealing(blocks: Sequence[Block]) -> list[Block]:
    """Blocks of captured calls minus the time in which the judge wrote their arguments.

    That time varies more than anything else on the judge's clock. But a candidate sees the arguments arrive and could
    begin early, which delays the writing, because a device serves one process at a time. So what the writing takes
    longer than for the reference, beyond chance, is not subtracted from the candidate's blocks.
    """
    delays = {calls: _delay_ns([block for block in blocks if block.calls == calls]) for calls in _lengths(blocks)}
    return [
        msgspec.structs.replace(
            block,
            elapsed_ns=block.elapsed_ns
            - block.revealing_ns
            + (delays[block.calls] if block.party == "candidate" else 0),
        )
        for block in blocks
    ]


def _lengths(blocks: Sequence[Block]) -> set[int]:
    return {block.calls for block in blocks}


def _delay_ns(blocks: Sequence[Block]) -> int:
    """By how much longer arguments were in the writing for the candidate than for the reference, less the doubt."""
    took: dict[int, dict[Party, int]] = defaultdict(dict)
    for block in blocks:
        took[block.round][block.party] = block.revealing_ns
    pairs = [parties for parties in took.values() if {"candidate", "reference"} <= parties.keys()]
    longer = np.array([parties["candidate"] - parties["reference"] for parties in pairs], dtype=np.float64)
    if longer.size < 2:
        return 0
    doubt = _IN_DOUBT * float(longer.std(ddof=1)) / float(np.sqrt(longer.size))
    return max(0, round(float(longer.mean()) - doubt))


def paired(blocks: Sequence[Block]) -> PerCall:
    """Blocks of one kind, paired within rounds."""
    rounds = _rounds(blocks)
    both = [parties for parties in rounds if {"candidate", "reference"} <= parties.keys()]
    gross = np.array([[parties["candidate"], parties["reference"]] for parties in both], dtype=np.float64)
    shim = _shims(both)
    return PerCall(gross.reshape(-1, 2), gross.reshape(-1, 2) - shim[:, np.newaxis], _median(shim), "calls", shim)


def _steadied(times: PerCall) -> PerCall:
    """With the same taken off every round: a captured block of nothing takes the same throughout, but for its noise."""
    if not times.shims.size:
        return times
    shim_ns = _median(times.shims)
    return times._replace(net=times.gross - shim_ns, shim_ns=shim_ns)


def _side_by_side(calls: Sequence[Block], graphs: Sequence[Block]) -> PerCall:
    """The candidate from blocks of one kind, the reference from those of the other."""
    mine = [parties for parties in _rounds(calls) if "candidate" in parties]
    theirs = [parties for parties in _rounds(graphs) if "reference" in parties]
    count = min(len(mine), len(theirs))
    own_shim, other_shim = _shims(mine)[:count], _shims(theirs)[:count]
    gross = np.array(
        [[mine[number]["candidate"], theirs[number]["reference"]] for number in range(count)], dtype=np.float64
    ).reshape(-1, 2)
    net = gross - np.column_stack((own_shim, other_shim)).reshape(-1, 2)
    return PerCall(gross, net, _median(own_shim), "calls against device", own_shim)


def _rounds(blocks: Sequence[Block]) -> list[dict[Party, float]]:
    """Per round, in order, each party's time over calls in the longest blocks."""
    long = max((block.calls for block in blocks), default=0)
    taken: dict[int, dict[Party, list[float]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        if block.calls == long:
            taken[block.round][block.party].append(block.elapsed_ns / long)
    return [{party: sum(times) / len(times) for party, times in taken[number].items()} for number in sorted(taken)]


def _shims(rounds: Iterable[dict[Party, float]]) -> Floats:
    """Rounds without a shim get the median of those with one; blocks without any have nothing taken off."""
    shim = np.array([parties.get("shim", np.nan) for parties in rounds], dtype=np.float64)
    known = shim[~np.isnan(shim)]
    return np.where(np.isnan(shim), float(np.median(known)) if known.size else 0.0, shim)


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else 0.0
