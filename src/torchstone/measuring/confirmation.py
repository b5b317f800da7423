"""Tests whether calls that get one input at a time confirm a speedup that was measured in long blocks.

A long block holds the inputs of all its calls from the start, so a candidate that computes them together looks faster
than it is. A model calls an operator once and waits for the result. So a candidate is `faster` only if single calls
show it too; where they show clearly less, their ratio counts.

A single call is short compared with the cost of making it. Its own time is a small difference of large numbers, and a
ratio of such differences has no useful distribution. So the test does not divide. It tests the sign of a mean over
rounds: the reference's own time minus ``ratio`` times the candidate's.
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
"""Largest factor by which the ratio of long blocks may exceed that of single calls: long blocks have warmer caches."""
LEAST_ROUNDS = 5
"""Least number of rounds of single calls to confirm or refute a ratio."""
_CERTAIN_STANDARD_ERRORS = 3.0
"""Standard errors from zero from which a sign counts as certain."""

Floats = NDArray[np.float64]


def own_times_ns(blocks: Sequence[Block]) -> Floats:
    """``(rounds, 2)``: times of the candidate's and the reference's single calls in each round, minus the shim's."""
    rounds: dict[int, dict[Party, int]] = defaultdict(dict)
    way = _deciding_way(blocks)
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
    """Own times with the reference's single calls reduced to at most its time per call in long blocks.

    A single call runs in a process that has just been woken. A chained call runs on caches that the code between calls
    has emptied. Both cost torch much, and a few lines of code that wait for the call little. Nor are the reference's
    single calls timed again after the candidate has ended.
    """
    warm_ns = least_reference_ns(blocks)
    if _is_captured(blocks) or not own.size or warm_ns is None:
        return own
    way = _deciding_way(blocks)
    calls = next(b.calls for b in blocks if b.way == way and _is_one_at_a_time(b))
    colder_ns = max(0.0, float(np.median(own[:, 1])) - warm_ns * calls)
    return np.subtract(own, (0.0, colder_ns), dtype=np.float64)


def _is_captured(blocks: Sequence[Block]) -> bool:
    return any(block.way == "captured" for block in blocks if block.party == "candidate")


def _deciding_way(blocks: Sequence[Block]) -> Way:
    """The ``way`` of the blocks that confirm or refute a speed."""
    ways = {block.way for block in blocks if block.party == "candidate"}
    return "chained" if "chained" in ways else "captured" if "captured" in ways else "called"


def _is_one_at_a_time(block: Block) -> bool:
    return block.calls == 1 or block.way == "chained"


def charged(own: Floats, blocks: Sequence[Block]) -> Floats:
    """Own times; to the candidate's is added the part of call handling that it can avoid: see ``times_per_call.py``.

    In chained calls this part includes the links between calls, which a candidate could compute faster. The reference's
    times are those of :func:`as_if_warm`.
    """
    way = _deciding_way(blocks)
    handling = [b.claimed_ns for b in blocks if b.party == "shim" and b.way == way and _is_one_at_a_time(b)]
    if not handling or _is_captured(blocks):
        return own
    return np.add(as_if_warm(own, blocks), (float(np.median(handling)), 0.0), dtype=np.float64)


def confirmation_of(own: Floats, charged: Floats, claimed_ratio: float, least_ratio: float) -> Confirmation:
    """Whether single calls confirm or refute ``claimed_ratio``. To confirm it they must exceed ``least_ratio``."""
    if own.shape[0] < LEAST_ROUNDS:
        return "open"
    if _clearance(own, claimed_ratio / ALLOWANCE) < -_critical_standard_errors(own):
        return "refuted"
    return "confirmed" if _clearance(charged, least_ratio) > _critical_standard_errors(charged) else "open"


def ratio_interval(own: Floats) -> tuple[float, float, float] | None:
    """The ratio of single calls and its 95 % interval; None if a party's own time is lost in noise."""
    (candidate, candidate_error), (reference, reference_error) = (trimmed_mean(own[:, party]) for party in (0, 1))
    if (
        candidate < _CERTAIN_STANDARD_ERRORS * candidate_error
        or reference < _CERTAIN_STANDARD_ERRORS * reference_error
        or not candidate
    ):
        return None
    ratio = reference / candidate
    width = _critical_standard_errors(own) * 2 / _CERTAIN_STANDARD_ERRORS
    return ratio, _interval_end(own, ratio, width, 0.5), _interval_end(own, ratio, -width, 2.0)


def supported_ratio(own: Floats) -> float:
    """The largest ratio that single calls confirm: their own ratio times the allowance.

    If the candidate's own time is less than its standard error, the standard error replaces it.
    """
    (candidate, candidate_error), (reference, _) = (trimmed_mean(own[:, party]) for party in (0, 1))
    shortest = max(candidate, candidate_error)
    return ALLOWANCE * reference / shortest if shortest > 0 else math.inf


def certain_ratio(own: Floats) -> float:
    """The lower end of the interval of single calls, times the allowance; 0 if there is no interval."""
    seen = ratio_interval(own)
    return 0.0 if seen is None else ALLOWANCE * seen[1]


def _interval_end(own: Floats, ratio: float, clearance: float, step: float) -> float:
    """An end of the interval: the ratio at which ``_clearance`` equals ``clearance``, found by bisection.

    ``step``: factor with which the search moves away from ``ratio``.
    """
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
    """The mean of reference time minus ``ratio`` times candidate time, in standard errors."""
    mean, error = trimmed_mean(own[:, 1] - ratio * own[:, 0])
    if error > 0:
        return mean / error
    return math.copysign(math.inf, mean) if mean else 0.0


def _critical_standard_errors(own: Floats) -> float:
    """Standard errors from which a sign is certain: more for few rounds, whose spread is uncertain."""
    freedom = own.shape[0] - 2 * trimmed_count(own.shape[0]) - 1
    return _CERTAIN_STANDARD_ERRORS * (1.0 + 2.0 / max(int(freedom), 1))
