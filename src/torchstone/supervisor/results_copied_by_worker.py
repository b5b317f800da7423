"""Has the worker copy its results into memory that both share, if the judge cannot read the worker's memory.

The time of a call includes the copy, for candidate and reference alike, so that deferred work is still timed. The copy
is part of the overhead that an empty call (the shim) measures. A candidate could omit it, so the record says that
results were copied.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import torch

from torchstone.protocol.commands import Copy
from torchstone.protocol.replies import Done
from torchstone.protocol.shared_memory import HostArena
from torchstone.protocol.tensor_places import Segment
from torchstone.supervisor.result_reading import Copies, Span, UnreadableError, packed
from torchstone.supervisor.worker_handle import Worker

_COPY_SECONDS = 60.0
"""Longest time of one copy."""
_LEAST_BYTES = 1 << 20
"""Smallest size of the shared memory. Larger results get twice the memory that they need."""


class CopyingReader:
    """Makes a worker copy its results. See `Reader` for the methods."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._memory: HostArena | None = None

    def read(self, spans: Sequence[Span], segments: Sequence[Segment] = ()) -> Copies:
        starts, total = packed([span.size_bytes for span in spans])
        memory, descriptor = self._memory_for(total)
        self._copy(spans, starts, memory, descriptor, outward=True)
        return Copies([memory.tensor(0, total, torch.uint8).clone()], [(0, start) for start in starts], spans)

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        largest = max((span.size_bytes for span in spans), default=0)
        memory, descriptor = self._memory_for(largest)
        memory.tensor(0, largest, torch.uint8).copy_(garbage[:largest])
        self._copy(spans, [0] * len(spans), memory, descriptor, outward=False)

    def _memory_for(self, size_bytes: int) -> tuple[HostArena, int | None]:
        """Memory of at least this size, and its descriptor if the worker does not have it yet."""
        if self._memory is not None and self._memory.size_bytes >= size_bytes:
            return self._memory, None
        self.close()
        try:
            self._memory = HostArena(max(_LEAST_BYTES, 2 * size_bytes))
        except (OSError, OverflowError, ValueError) as error:  # the size is the worker's claim
            raise UnreadableError(f"results of {size_bytes} bytes do not fit into memory: {error}") from error
        return self._memory, self._memory.descriptor

    def _copy(
        self, spans: Sequence[Span], starts: Sequence[int], memory: HostArena, descriptor: int | None, *, outward: bool
    ) -> None:
        pieces = tuple((span.address, start, span.size_bytes) for span, start in zip(spans, starts, strict=True))
        was_frozen = self._worker.is_frozen
        command = Copy(secrets.token_hex(8), pieces, memory.size_bytes, outward)
        reply = self._worker.ask(command, time.monotonic() + _COPY_SECONDS, descriptor)
        if was_frozen:
            self._worker.freeze()
        if not isinstance(reply, Done):
            raise UnreadableError("the worker could not copy it")

    def end_case(self) -> None:
        """Nothing to do: the shared memory stays for the next case."""

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
