"""Computes times per call for each round of timed blocks: chooses the deciding blocks and subtracts overhead.

The time of a call is the time of a long block minus the shim's, divided by the number of calls. The difference of a
long block and a single call is not used: a candidate could reduce it by slow single calls.
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
"""What the times are of.

`device`: both parties are captured, so launches are not timed. `calls`: the candidate's times include launches, and the
reference's too. `calls against device`: the candidate could not be captured, so only its times include launches."""

_CHANCE_STANDARD_ERRORS = 2.0
"""Standard errors up to which a difference counts as chance."""
CONFIRMS_NO_SPEEDUP = (0.0, 0.0)
"""Result of :func:`ratio_alone` that confirms no speedup: as if the reference took no time without the candidate."""


class PerCall(NamedTuple):
    """Nanoseconds per call: a column each for candidate and reference, a row for each round."""

    gross: Floats
    """Times by the judge's clock, the cost of calling included."""
    net: Floats
    """``gross`` minus the shim's time."""
    shim_ns: float
    """Median of the shim's times that were subtracted from the candidate's."""
    clocked: Clocked
    shims: Floats
    """The shim's times that were subtracted from the candidate's, one value for each round."""
    claimed: Floats | None = None
    """Times by the device's clock, as the workers report them, minus the shim's. For captured calls only."""
    charged: Floats | None = None
    """The candidate's time minus only the overhead that it cannot avoid, for calls made one by one.

    Most of the shim runs in the worker's process, where a candidate can be faster than Torchstone's code. So this part
    is subtracted to report a time, but not to decide `faster`. The shim's worker, which is trusted, reports it."""


def per_call(blocks: Sequence[Block]) -> PerCall:
    """Times per call in the deciding blocks, for rounds in which both parties were measured."""
    graphs = [block for block in blocks if block.way == "captured"]
    calls = [block for block in blocks if block.way == "called"]
    captured = {block.party for block in graphs}
    if {"candidate", "reference"} <= captured:
        claims = paired([msgspec.structs.replace(block, elapsed_ns=block.claimed_ns) for block in graphs])
        return _with_median_shim(paired(less_revealing(graphs)))._replace(clocked="device", claimed=claims.net)
    if "reference" in captured:
        return _side_by_side(calls, less_revealing(graphs))
    return _charging(paired(calls), calls)


def _charging(times: PerCall, blocks: Sequence[Block]) -> PerCall:
    """The times with ``charged``: the candidate's net time plus the shim's time in its worker."""
    own = [msgspec.structs.replace(block, elapsed_ns=block.claimed_ns) for block in blocks if block.party == "shim"]
    return times._replace(charged=times.net[:, 0] + _median(_shims(_rounds(own))))


def ratio_alone(blocks: Sequence[Block]) -> tuple[float, float] | None:
    """The reference's time without the candidate, divided by the candidate's, and the lower end of that ratio.

    The smaller one of two ratios counts: with the reference before the candidate was loaded, and after it ended. None:
    the reference was not timed after the candidate ended. The shim of the same moment is subtracted from each time. A
    candidate can make the shim slower, so no more than the shim's time without it is subtracted from the candidate's
    time. If nothing of that is left, no speedup is confirmed.
    """
    if not any(block.way == "alone" for block in blocks):
        return None
    moments = [[block for block in blocks if block.way == way] for way in ("alone", "beforehand")]
    found = [_ratio_at_moment(moment, per_call(blocks)) for moment in moments if moment]
    return min(ratio for ratio, _ in found), min(surely for _, surely in found)


def _ratio_at_moment(blocks: Sequence[Block], times: PerCall) -> tuple[float, float]:
    """The ratio of :func:`ratio_alone`, with its lower end, for blocks of one moment without the candidate."""
    (reference, doubt), (shim, of_shim) = (
        trimmed_mean(np.array([b.elapsed_ns / b.calls for b in less_revealing(blocks) if b.party == party]))
        for party in ("reference", "shim")
    )
    if times.clocked == "calls against device":  # the two kinds of block have different shims
        own = float(np.median(times.net[:, 0]))
    else:
        own = float(np.median(times.gross[:, 0])) - min(shim, times.shim_ns)
    if own <= 0:
        return CONFIRMS_NO_SPEEDUP
    return (reference - shim) / own, (reference - shim - _CHANCE_STANDARD_ERRORS * math.hypot(doubt, of_shim)) / own


def least_reference_ns(blocks: Sequence[Block]) -> float | None:
    """The reference's least median time per call in long blocks of calls made one by one; None without such blocks.

    Compared are blocks beside the candidate, before it was loaded and after it ended.
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

    This time varies more than any other part of the judge's clock. But a candidate could begin as soon as it sees the
    arguments. This would delay the writing, because a device serves one process at a time. So if writing takes longer
    for the candidate than for the reference, beyond chance, this difference is not subtracted from its blocks.
    """
    delays = {calls: _delay_ns([block for block in blocks if block.calls == calls]) for calls in _call_counts(blocks)}
    return [
        msgspec.structs.replace(
            block,
            elapsed_ns=block.elapsed_ns
            - block.revealing_ns
            + (delays[block.calls] if block.party == "candidate" else 0),
        )
        for block in blocks
    ]


def _call_counts(blocks: Sequence[Block]) -> set[int]:
    return {block.calls for block in blocks}


def _delay_ns(blocks: Sequence[Block]) -> int:
    """By how much longer writing arguments took for the candidate than for the reference, beyond chance."""
    took: dict[int, dict[Party, int]] = defaultdict(dict)
    for block in blocks:
        took[block.round][block.party] = block.revealing_ns
    pairs = [parties for parties in took.values() if {"candidate", "reference"} <= parties.keys()]
    longer = np.array([parties["candidate"] - parties["reference"] for parties in pairs], dtype=np.float64)
    if longer.size < 2:
        return 0
    doubt = _CHANCE_STANDARD_ERRORS * float(longer.std(ddof=1)) / float(np.sqrt(longer.size))
    return max(0, round(float(longer.mean()) - doubt))


def paired(blocks: Sequence[Block]) -> PerCall:
    """Times per call from blocks of one kind, for rounds that have both parties."""
    rounds = _rounds(blocks)
    both = [parties for parties in rounds if {"candidate", "reference"} <= parties.keys()]
    gross = np.array([[parties["candidate"], parties["reference"]] for parties in both], dtype=np.float64)
    shim = _shims(both)
    return PerCall(gross.reshape(-1, 2), gross.reshape(-1, 2) - shim[:, np.newaxis], _median(shim), "calls", shim)


def _with_median_shim(times: PerCall) -> PerCall:
    """The times with the median shim subtracted in every round: a captured empty block varies only by noise."""
    if not times.shims.size:
        return times
    shim_ns = _median(times.shims)
    return times._replace(net=times.gross - shim_ns, shim_ns=shim_ns)


def _side_by_side(calls: Sequence[Block], graphs: Sequence[Block]) -> PerCall:
    """Times with the candidate's from blocks of calls made one by one, and the reference's from captured blocks."""
    candidate_rounds = [parties for parties in _rounds(calls) if "candidate" in parties]
    reference_rounds = [parties for parties in _rounds(graphs) if "reference" in parties]
    count = min(len(candidate_rounds), len(reference_rounds))
    own_shim, other_shim = _shims(candidate_rounds)[:count], _shims(reference_rounds)[:count]
    gross = np.array(
        [[candidate_rounds[number]["candidate"], reference_rounds[number]["reference"]] for number in range(count)],
        dtype=np.float64,
    ).reshape(-1, 2)
    net = gross - np.column_stack((own_shim, other_shim)).reshape(-1, 2)
    return PerCall(gross, net, _median(own_shim), "calls against device", own_shim)


def _rounds(blocks: Sequence[Block]) -> list[dict[Party, float]]:
    """For each round, in order: each party's time per call in blocks with the most calls."""
    long = max((block.calls for block in blocks), default=0)
    taken: dict[int, dict[Party, list[float]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        if block.calls == long:
            taken[block.round][block.party].append(block.elapsed_ns / long)
    return [{party: sum(times) / len(times) for party, times in taken[number].items()} for number in sorted(taken)]


def _shims(rounds: Iterable[dict[Party, float]]) -> Floats:
    """The shim's time in each round. Rounds without a shim get the median of the others; 0 if no round has one."""
    shim = np.array([parties.get("shim", np.nan) for parties in rounds], dtype=np.float64)
    known = shim[~np.isnan(shim)]
    return np.where(np.isnan(shim), float(np.median(known)) if known.size else 0.0, shim)


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else 0.0
