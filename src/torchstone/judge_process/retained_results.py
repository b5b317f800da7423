"""Checks that later calls do not change earlier results, which the worker keeps meanwhile.

:class:`torchstone.judge_process.block_guards.OwnMemoryGuard` finds two results of one block in the same memory. A
kernel that returns a ring of many buffers passes that check. But some hundred calls later it overwrites a result that a
caller may still hold. So the worker keeps a few results of earlier blocks until the case is released. The command of
the next block tells it which ones, after those calls have ended. No later result may lie in their memory. At release
they must still hold, bit for bit, what the judge wrote over them after reading. A kernel that allocates its results
always passes.

Before the release the worker makes many more calls, whose results are not compared. They only advance a ring, which may
be longer than the number of calls in a trial.

The kept results are few and small: each of the first blocks gives one, later blocks with a decreasing probability. The
reference keeps as many, so that both have the same memory. Captured calls keep none, because their results lie in the
same memory at every replay.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from torchstone.judge_process.block_results import BlockResults
from torchstone.protocol.tensor_places import MOST_KEPT, Segment
from torchstone.supervisor.result_reading import Reader, Span, UnreadableError

_ALWAYS_KEEPING_BLOCKS = 3
"""Number of first blocks of which a result is always kept. The n-th block after these keeps one with probability
1 / (1 + n // 2)."""
_MOST_KEPT_BYTES = 32 << 20
"""Most bytes of kept results per case. The results of the first kept call may take _LARGEST_FIRST_BYTES."""
_LARGEST_FIRST_BYTES = 256 << 20
_LEAST_FURTHER_CALLS, _MOST_FURTHER_CALLS = 128, 4096
"""Fewest and most further calls. The minimum applies only to calls that are quicker than _SLOW_CALL_NS."""
_SLOW_CALL_NS = 4_000_000
"""Nanoseconds per call from which a block's time tells how many calls fit into a budget. A block of quicker calls costs
more than its calls, and on a busy machine much more, so its time gives too few."""


class LostResultError(Exception):
    """A kept result was changed or freed after the kernel had returned it."""


class RetainedResults:
    """The results that a worker keeps for one case: chooses them and checks them."""

    def __init__(self) -> None:
        self._kept: list[_KeptCall] = []
        self._kept_bytes = 0
        self._blocks_with_results = 0
        self._last_block: tuple[BlockResults, int] | None = None
        self._quickest_call_ns: int | None = None
        """Time per call of the quickest block so far, the cost of the block included. None: no block yet."""

    def calls_within(self, budget_ns: int) -> int:
        """How many calls fit into the budget, by the quickest block's time per call; 0 without such a block."""
        if self._quickest_call_ns is None:
            return 0
        least = _LEAST_FURTHER_CALLS if self._quickest_call_ns < _SLOW_CALL_NS else 0
        return max(least, min(_MOST_FURTHER_CALLS, budget_ns // self._quickest_call_ns))

    def note(self, block: BlockResults, shift: int) -> None:
        """Note the last block. ``shift`` is the offset of the garbage that was written over its results."""
        self._last_block = block, shift
        per_call_ns = max(1, block.elapsed_ns // max(1, block.count))
        self._quickest_call_ns = (
            per_call_ns if self._quickest_call_ns is None else min(self._quickest_call_ns, per_call_ns)
        )

    def pass_over(self) -> None:
        """Keep nothing of the last block: the shim returns the same ready results every time."""
        self._last_block = None

    def choose(self) -> tuple[int, ...]:
        """Choose the calls of the last block whose results the worker must keep: a random one, or none."""
        if self._last_block is None:
            return ()
        block, shift = self._last_block
        self._last_block = None
        self._blocks_with_results += 1
        later_blocks = max(0, self._blocks_with_results - _ALWAYS_KEEPING_BLOCKS)
        if len(self._kept) >= MOST_KEPT or not block.count or secrets.randbelow(1 + later_blocks // 2):
            return ()
        call = secrets.randbelow(block.count)
        spans = block.own_spans_of(call)
        size_bytes = sum(span.size_bytes for span in spans)
        if not spans or self._kept_bytes + size_bytes > (_MOST_KEPT_BYTES if self._kept else _LARGEST_FIRST_BYTES):
            return ()
        self._kept_bytes += size_bytes
        self._kept.append(_KeptCall(spans, _segments_with(spans, block.done.segments), shift))
        return (call,)

    def find_call_on_kept_result(self, block: BlockResults) -> int | None:
        """A call of a new block whose result lies in the memory of a kept result, by the addresses in its reply."""
        if not self._kept or not block.spans:
            return None
        kept = np.array([span for kept_call in self._kept for span in kept_call.spans], dtype=np.int64)
        new = np.array(block.spans, dtype=np.int64)
        begins, ends = new[:, :1], new.sum(axis=1, keepdims=True)
        overlaps = ((begins < kept.sum(axis=1)) & (ends > kept[:, 0])).any(axis=1)
        return block.call_of(int(overlaps.argmax())) if overlaps.any() else None

    def check(self, reader: Reader, garbage: torch.Tensor) -> None:
        """Raise LostResultError unless every kept result still holds the judge's garbage.

        The worker must be paused, and its device idle.
        """
        spans = [span for kept_call in self._kept for span in kept_call.spans]
        wanted = [
            garbage[kept_call.shift : kept_call.shift + span.size_bytes]
            for kept_call in self._kept
            for span in kept_call.spans
        ]
        if not spans:
            return
        try:
            found = list(reader.read(spans, [segment for kept_call in self._kept for segment in kept_call.segments]))
        except UnreadableError as error:
            raise LostResultError(
                f"the memory of a result was freed while the result was still in use ({error})"
            ) from error
        if not all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True)):
            raise LostResultError("a result was overwritten by later calls while it was still in use")


class _KeptCall(NamedTuple):
    """The kept results of one call: where they lie, and what they must hold."""

    spans: Sequence[Span]
    segments: Sequence[Segment]
    shift: int
    """Offset in the judge's garbage of the bytes that were written over each result."""


def _segments_with(spans: Sequence[Span], segments: Sequence[Segment]) -> list[Segment]:
    """The device allocations that hold one of the spans."""
    return [
        segment
        for segment in segments
        if any(0 <= span.address - segment.address < segment.size_bytes for span in spans)
    ]
