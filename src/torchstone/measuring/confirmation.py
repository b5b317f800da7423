"""Tests a speed that was measured in long blocks of calls against calls that get one input at a time.

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

from torchstone.measuring.times_per_call import least_reference_ns, less_revealing
from torchstone.measuring.trimmed_means import trimmed_count, trimmed_mean
from torchstone.schema import Block, Party, Way

Confirmation = Literal["confirmed", "refuted", "open"]

ALLOWANCE = 1.1
"""Largest factor between the ratio of long blocks and that of single calls: caches are warmer in long blocks."""
LEAST_ROUNDS = 5
_CLEAR = 3.0
"""Standard errors from zero from which a sign counts as certain."""

Floats = NDArray[np.float64]


def own_times_ns(blocks: Sequence[Block]) -> Floats:
    """Per round: the times of the candidate's and the reference's single calls, minus the shim's."""
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
    """The same, with the reference's single calls no slower than its calls in long blocks.

    A single call comes to a process that has just been woken, and a chained one to caches that the links have emptied.
    That costs torch much, and little to a few lines of code that wait for the call. And single calls of the reference
    are not timed again when the candidate is gone.
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
    """The same, with the candidate charged for the part of call handling that it can avoid: see ``times_per_call.py``.

    In chained calls also for the links between them, which it could compute faster. The reference gains nothing from
    cold caches.
    """
    way = _deciding(blocks)
    handling = [b.claimed_ns for b in blocks if b.party == "shim" and b.way == way and _is_one_at_a_time(b)]
    if not handling or _is_captured(blocks):
        return own
    return np.add(as_if_warm(own, blocks), (float(np.median(handling)), 0.0), dtype=np.float64)


def finding(own: Floats, charged: Floats, claimed_ratio: float, least_ratio: float) -> Confirmation:
    """Whether single calls confirm or refute the ratio of long blocks. It matters only above ``least_ratio``."""
    if own.shape[0] < LEAST_ROUNDS:
        return "open"
    if _clearance(own, claimed_ratio / ALLOWANCE) < -_critical(own):
        return "refuted"
    return "confirmed" if _clearance(charged, least_ratio) > _critical(charged) else "open"


def ratio_interval(own: Floats) -> tuple[float, float, float] | None:
    """The ratio of single calls and its 95 % interval; None if a party's own time does not show in them."""
    (candidate, candidate_error), (reference, reference_error) = (trimmed_mean(own[:, party]) for party in (0, 1))
    if candidate < _CLEAR * candidate_error or reference < _CLEAR * reference_error or not candidate:
        return None
    ratio = reference / candidate
    width = _critical(own) * 2 / _CLEAR
    return ratio, _edge(own, ratio, width, 0.5), _edge(own, ratio, -width, 2.0)


def supported_ratio(own: Floats) -> float:
    """The largest ratio that single calls confirm: their own ratio times the allowance.

    If the candidate's own time does not show in them, its standard error counts as its time.
    """
    (candidate, candidate_error), (reference, _) = (trimmed_mean(own[:, party]) for party in (0, 1))
    shortest = max(candidate, candidate_error)
    return ALLOWANCE * reference / shortest if shortest > 0 else math.inf


def certain_ratio(own: Floats) -> float:
    """The lower end of the ratio of single calls, times the allowance; 0 if they show nothing."""
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
