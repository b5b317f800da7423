"""Times calls on warm caches: the reference makes the same call again and again, as in other benchmarks.

A block begins with caches that other work has filled. In a block of few calls this cost cannot be separated from the
calls, and makes short calls look up to three times as long. So blocks of one call and of many are compared. Only the
reference may repeat a call: a candidate could return what it has computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torchstone.measuring.long_block_experiment import Times
from torchstone.measuring.trimmed_means import low_third
from torchstone.schema import Block, Way

REPEATED: Way = "repeated"
PAIRS = 12
"""Pairs of a block of one call and a block of many."""
_BLOCK_NS = 2_000_000
"""Wanted length of a block of many calls."""
_MOST_CALLS = 1000
"""Most calls of such a block."""


def repeated_pairs(run: Callable[[int], Times], call_ns: int, first: int) -> list[Block]:
    """Run pairs of blocks that repeat one call: a block of one call, and one of many. Rounds count from ``first``."""
    many = max(2, min(_MOST_CALLS, _BLOCK_NS // max(1, call_ns)))
    blocks = []
    for number in range(first, first + PAIRS):
        for calls in (1, many):
            times = run(calls)
            blocks.append(Block(number, "reference", calls, times.elapsed_ns, times.claimed_ns, REPEATED))
    return blocks


def repeated_call_ns(blocks: Sequence[Block]) -> float | None:
    """The time of one more call in a block; None if there are no such blocks, or more calls did not take longer."""
    found = [block for block in blocks if block.way == REPEATED]
    many = max((block.calls for block in found), default=1)
    if many == 1:
        return None
    one_ns, many_ns = (_low_ns(found, calls) for calls in (1, many))
    return (many_ns - one_ns) / (many - 1) if many_ns > one_ns else None


def _low_ns(blocks: Sequence[Block], calls: int) -> float:
    """Mean of the lowest third of the times of blocks of this many calls."""
    return float(low_third(np.array([block.elapsed_ns for block in blocks if block.calls == calls], dtype=np.float64)))
