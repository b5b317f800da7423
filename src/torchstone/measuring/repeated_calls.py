"""Times calls on warm caches: the reference makes the same call again and again, as in other benchmarks.

A block begins with caches that other work has filled. What that costs cannot be told from its few calls, which makes
short calls look up to three times as long. So blocks of one call and of many are compared. Only the reference may
repeat a call: a candidate could return what it has computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torchstone.measuring.long_block_experiment import Times
from torchstone.measuring.trimmed_means import low_third
from torchstone.schema import Block, Way

REPEATED: Way = "repeated"
PAIRS = 12
"""Of a block of one call and one of many."""
_BLOCK_NS = 2_000_000
"""Aim for long blocks of about this length."""
_MOST_CALLS = 1000


def repeated_pairs(run: Callable[[int], Times], call_ns: int, first: int) -> list[Block]:
    """Blocks in which one call is repeated: once, and as often as fits."""
    many = max(2, min(_MOST_CALLS, _BLOCK_NS // max(1, call_ns)))
    blocks = []
    for number in range(first, first + PAIRS):
        for calls in (1, many):
            times = run(calls)
            blocks.append(Block(number, "reference", calls, times.elapsed_ns, times.claimed_ns, REPEATED))
    return blocks


def repeated_call_ns(blocks: Sequence[Block]) -> float | None:
    """What one more call of the reference takes; None: nobody measured it, or it cannot be told from chance."""
    found = [block for block in blocks if block.way == REPEATED]
    many = max((block.calls for block in found), default=1)
    if many == 1:
        return None
    one_ns, many_ns = (_low_ns(found, calls) for calls in (1, many))
    return (many_ns - one_ns) / (many - 1) if many_ns > one_ns else None


def _low_ns(blocks: Sequence[Block], calls: int) -> float:
    return float(low_third(np.array([block.elapsed_ns for block in blocks if block.calls == calls], dtype=np.float64)))
