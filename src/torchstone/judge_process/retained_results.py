"""Checks that later calls do not change earlier results, which the worker keeps meanwhile.

Within a block, two results in the same memory are found by
:class:`torchstone.judge_process.block_guards.OwnMemoryGuard`. A ring of many buffers is right within every block. But
some hundred calls later it destroys a result that a caller may still hold. So the worker keeps a few results of
earlier blocks until it is released from the case. It learns which ones with the next block, when those calls are long
over. No later result may lie there. In the end they must hold, bit for bit, what the judge wrote over them after
reading. A kernel that allocates its results passes without knowing of this.

After that the worker makes as many calls as fit into a few milliseconds. Their results are not read: they only move a
ring on, because a ring is longer than most trials have calls.

The kept results are few and small: the first blocks give one each, later ones ever more rarely. The reference keeps
as many, so that both have the same memory. Captured calls keep none, because their results lie in the same memory
whenever they are played.
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

_ALWAYS = 3
"""Blocks of which a result is kept in any case; of the n-th after these with a chance of one in 1 + n / 2."""
_MOST_BYTES = 32 << 20
"""Of all that is kept; the first may be larger."""
_LARGEST_BYTES = 256 << 20
_LEAST_CALLS, _MOST_CALLS = 128, 4096
_SLOW_NS = 4_000_000
"""Nanoseconds of a call. For longer calls a block itself shows how many calls fit. For quicker ones a block of its own
costs more than its calls, and on a busy machine much more."""


class LostResultError(Exception):
    """A result changed after it had been handed over."""


class RetainedResults:
    """What a worker keeps for one case."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._bytes = 0
        self._blocks = 0
        self._last: tuple[BlockResults, int] | None = None
        self._quickest_ns: int | None = None
        """A call, with its part of the block around it."""

    def calls_within(self, budget_ns: int) -> int:
        """How many calls fit in there, as far as the quickest block tells; 0 if there is nothing to see by them."""
        if self._quickest_ns is None:
            return 0
        least = _LEAST_CALLS if self._quickest_ns < _SLOW_NS else 0
        return max(least, min(_MOST_CALLS, budget_ns // self._quickest_ns))

    def note(self, block: BlockResults, shift: int) -> None:
        """A block is over, and its results are overwritten with garbage from there on."""
        self._last = block, shift
        per_call_ns = max(1, block.elapsed_ns // max(1, block.count))
        self._quickest_ns = per_call_ns if self._quickest_ns is None else min(self._quickest_ns, per_call_ns)

    def pass_over(self) -> None:
        """Nothing of the last block is to be kept: ready results are handed out again and again."""
        self._last = None

    def choose(self) -> tuple[int, ...]:
        """The calls of the last block whose results the worker is to keep: one that nobody can foresee, or none."""
        if self._last is None:
            return ()
        block, shift = self._last
        self._last = None
        self._blocks += 1
        beyond = max(0, self._blocks - _ALWAYS)
        if len(self._held) >= MOST_KEPT or not block.count or secrets.randbelow(1 + beyond // 2):
            return ()
        call = secrets.randbelow(block.count)
        spans = block.own_spans_of(call)
        size = sum(span.size_bytes for span in spans)
        if not spans or self._bytes + size > (_MOST_BYTES if self._held else _LARGEST_BYTES):
            return ()
        self._bytes += size
        self._held.append(_Held(spans, _around(spans, block.done.segments), shift))
        return (call,)

    def covered_by(self, block: BlockResults) -> int | None:
        """A call of a new block with a result in memory that is still somebody's, by the addresses that it names."""
        if not self._held or not block.spans:
            return None
        kept = np.array([span for held in self._held for span in held.spans], dtype=np.int64)
        new = np.array(block.spans, dtype=np.int64)
        begins, ends = new[:, :1], new.sum(axis=1, keepdims=True)
        on_top = ((begins < kept.sum(axis=1)) & (ends > kept[:, 0])).any(axis=1)
        return block.call_of(int(on_top.argmax())) if on_top.any() else None

    def check(self, reader: Reader, garbage: torch.Tensor) -> None:
        """See whether all that is kept is as the judge left it. The worker stands still, and so does its device."""
        spans = [span for held in self._held for span in held.spans]
        wanted = [garbage[held.shift : held.shift + span.size_bytes] for held in self._held for span in held.spans]
        if not spans:
            return
        try:
            found = list(reader.read(spans, [segment for held in self._held for segment in held.segments]))
        except UnreadableError as error:
            raise LostResultError(f"the memory of a result is gone while its owner still has it ({error})") from error
        if not all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True)):
            raise LostResultError("a result was overwritten by later calls while its owner still had it")


class _Held(NamedTuple):
    """The results of one call."""

    spans: Sequence[Span]
    segments: Sequence[Segment]
    shift: int
    """Where in the judge's garbage that begins which lies there now."""


def _around(spans: Sequence[Span], segments: Sequence[Segment]) -> list[Segment]:
    return [
        segment
        for segment in segments
        if any(0 <= span.address - segment.address < segment.size_bytes for span in spans)
    ]
