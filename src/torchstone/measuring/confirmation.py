"""Confirms a speed by calls that get one input at a time.

A long block holds the inputs of all its calls from the start, so a candidate that computes them together looks faster
than it is. A model calls an operator once and waits for the result. So a candidate is `faster` only if single calls
show it too; where they show clearly less, their ratio counts.

A single call is short beside the cost of making it. Its own time is a small difference of large numbers, and a ratio
of such differences has no useful distribution. So the test does not divide: is the reference's own time longer than
``ratio`` times the candidate's? That is a mean over rounds, and its sign can be tested.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from torchstone.measuring.per_call import least_reference_ns, less_revealing
from torchstone.measuring.trimmed import trimmed_count, trimmed_mean
from torchstone.schema import Block, Party, Way

Finding = Literal["confirmed", "refuted", "open"]

ALLOWANCE = 1.1
"""A long block may show this much more than single calls do: caches are warmer in it."""
LEAST_ROUNDS = 5
_CLEAR = 3.0
"""Standard errors from zero that count as a sign."""

Floats = NDArray[np.float64]


def own_times_ns(blocks: Sequence[Block]) -> Floats:
    """Per round: what the candidate's calls and the reference's took beyond the shim's, given one at a time."""
    rounds: dict[int, dict[Party, int]] = defaultdict(dict)
    way = _deciding(blocks)
    for block in less_revealing([block for block in blocks if block.way == way]):
        if _is_one_at_a_time(block):
            rounds[block.round][block.party] = block.elapsed_ns
    rows = [
        (parties["candidate"] - parties.get("shim", 0), parties["reference"] - parties.get("shim", 0))
        for parties in rounds.values()
        if {"candidate", "reference"} <= parties.keys()
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def as_if_warm(own: Floats, blocks: Sequence[Block]) -> Floats:
    """The same, with the reference no slower in such calls than it is in long blocks, with the candidate or without.

    A call on its own comes to a process that has just been woken, and a chained one to caches that what lies between
    has emptied; that is a long time to torch, and none to a few lines that lie in wait for it. And nobody looks at such
    calls of the reference's when the candidate is gone.
    """
    warm_ns = least_reference_ns(blocks)
    if _is_captured(blocks) or not own.size or warm_ns is None:
        return own
    way = _deciding(blocks)
    calls = next(b.calls for b in blocks if b.way == way and _is_one_at_a_time(b))
    colder_ns = max(0.0, float(np.median(own[:, 1])) - warm_ns * calls)
    return np.subtract(own, (0.0, colder_ns), dtype=np.float64)


def _is_captured(blocks: Sequence[Block]) -> bool:
    return any(block.way == "captured" for block in blocks if block.party == "candidate")


def _deciding(blocks: Sequence[Block]) -> Way:
    """The way in which calls are given one at a time."""
    ways = {block.way for block in blocks if block.party == "candidate"}
    return "chained" if "chained" in ways else "captured" if "captured" in ways else "called"


def _is_one_at_a_time(block: Block) -> bool:
    return block.calls == 1 or block.way == "chained"


def charged(own: Floats, blocks: Sequence[Block]) -> Floats:
    """The same, with the candidate charged for what it can avoid of handling a call: see ``per_call.py``.

    Of chained calls also for what lies between them, which it could do quicker; and the reference has nothing from that
    its caches were cold.
    """
    way = _deciding(blocks)
    handling = [b.claimed_ns for b in blocks if b.party == "shim" and b.way == way and _is_one_at_a_time(b)]
    if not handling or _is_captured(blocks):
        return own
    return np.add(as_if_warm(own, blocks), (float(np.median(handling)), 0.0), dtype=np.float64)


def finding(own: Floats, charged: Floats, claimed_ratio: float, least_ratio: float) -> Finding:
    """What single calls say about a ratio that long blocks show, and that must be above ``least_ratio`` to matter."""
    if own.shape[0] < LEAST_ROUNDS:
        return "open"
    if _clearance(own, claimed_ratio / ALLOWANCE) < -_critical(own):
        return "refuted"
    return "confirmed" if _clearance(charged, least_ratio) > _critical(charged) else "open"


def ratio_interval(own: Floats) -> tuple[float, float, float] | None:
    """The ratio that single calls show and its 95 % interval; None where a party's own time is not seen in them."""
    (candidate, candidate_error), (reference, reference_error) = (trimmed_mean(own[:, party]) for party in (0, 1))
    if candidate < _CLEAR * candidate_error or reference < _CLEAR * reference_error or not candidate:
        return None
    ratio = reference / candidate
    width = _critical(own) * 2 / _CLEAR
    return ratio, _edge(own, ratio, width, 0.5), _edge(own, ratio, -width, 2.0)


def supported_ratio(own: Floats) -> float:
    """The most that calls given one at a time bear out: what they show, and the allowance.

    Where the candidate's own time is not seen in them, as if it were as large as the doubt about it.
    """
    (candidate, candidate_error), (reference, _) = (trimmed_mean(own[:, party]) for party in (0, 1))
    shortest = max(candidate, candidate_error)
    return ALLOWANCE * reference / shortest if shortest > 0 else math.inf


def certain_ratio(own: Floats) -> float:
    """What single calls show beyond doubt, and the allowance; 0 where they show nothing."""
    seen = ratio_interval(own)
    return 0.0 if seen is None else ALLOWANCE * seen[1]


def _edge(own: Floats, ratio: float, clearance: float, step: float) -> float:
    """Walk from the ratio until the clearance is reached, then halve the way: the edge of the interval."""
    beyond = ratio
    for _ in range(20):
        beyond *= step
        if (_clearance(own, beyond) - clearance) * (1 if step < 1 else -1) > 0:
            break
    near, far = math.log(ratio), math.log(beyond)
    for _ in range(30):
        middle = (near + far) / 2
        reached = (_clearance(own, math.exp(middle)) - clearance) * (1 if step < 1 else -1) > 0
        near, far = (near, middle) if reached else (middle, far)
    return math.exp(far)


def _clearance(own: Floats, ratio: float) -> float:
    """By how many standard errors the reference takes longer than this many times the candidate."""
    mean, error = trimmed_mean(own[:, 1] - ratio * own[:, 0])
    if error > 0:
        return mean / error
    return math.copysign(math.inf, mean) if mean else 0.0


def _critical(own: Floats) -> float:
    """More for few rounds, whose spread is itself uncertain."""
    freedom = own.shape[0] - 2 * trimmed_count(own.shape[0]) - 1
    return _CLEAR * (1.0 + 2.0 / max(int(freedom), 1))
