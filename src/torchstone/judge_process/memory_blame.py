"""Decides what is to blame when a device lacks memory: the candidate, other processes, or the size of the case.

A candidate must not cause checks to be skipped by holding memory. So a lack of memory ends the trial. The job is tried
again with the device to itself, and without work of the judge beside the candidate's calls. Then the judge can compute
how much memory the candidate holds. This is the memory that was free before it was loaded, less what is free now, less
what the judge has taken since. More than the case needs is the candidate's failure. Otherwise the call does not fit on
this device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from torchstone import schema
from torchstone.calls.torch_errors import is_out_of_memory

_ALLOWED_SHARE = 1 / 16
_LEAST_ALLOWED_BYTES = 1 << 30
"""Memory that a candidate may hold besides the case's: its CUDA context, libraries, and unused memory of its allocator.
The larger of this share of the device and these bytes."""
_SHARE_OF_OTHERS = 1 / 4
"""Share of a device above which other processes are blamed for a lack of memory."""
_BUFFER_COPIES = 4
"""Copies of a case's buffers that a candidate may hold: the judge's block, results, and memory of captured calls."""
_REFERENCE_PEAKS = 2
"""A candidate may hold this many times the peak memory of torch's own operator."""
_MOST_SETTLING_SECONDS = 10.0
_STABLE_SECONDS = 0.3
"""Most seconds to wait for stable free memory, and seconds without growth after which it counts as stable. The driver
frees memory of an ended process with a delay."""


class DeviceMemory(Protocol):
    """Reads a device's memory."""

    def free_bytes(self) -> int:
        """Memory that no process has."""
        ...

    def own_bytes(self) -> int:
        """Memory that this process has, after it has freed what it does not use."""
        ...

    def total_bytes(self) -> int: ...


class CudaMemory:
    """Reads a CUDA device's memory from the driver and from this process's torch allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self._device)[0])

    def own_bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_reserved(self._device))

    def total_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self._device)[1])


class _Reading(NamedTuple):
    own_bytes: int
    free_bytes: int


class MemoryShortage:
    """Decides for one judge whether a lack of device memory is the candidate's failure."""

    def __init__(
        self,
        memory: DeviceMemory | None,
        may_hold_memory: Callable[[], bool],
        own_workers: Callable[[], int] = lambda: 0,
    ) -> None:
        """``memory``: None for the CPU, where workers have a limit. ``may_hold_memory``: whether another process of
        ours could hold device memory now: a candidate, another judge, a reader of problems. ``own_workers``: how many
        workers of the reference and the shim the judge has now.
        """
        self._memory = memory
        self._may_hold_memory, self._own_workers = may_hold_memory, own_workers
        self._before: _Reading | None = None
        """Memory before the candidate was loaded, while the judge had the device alone. None: it has not."""
        self._planned_bytes = self._excess_bytes = self._held_bytes = self._foreign_bytes = 0

    @property
    def is_watched(self) -> bool:
        """Whether the job has the device alone because memory was lacking. Then nothing is done beside a call."""
        return self._before is not None

    @property
    def can_watch(self) -> bool:
        """Whether the memory of the device can be watched at all."""
        return self._memory is not None

    def watch(self) -> None:
        """Begin to watch: the job is tried again, has the device alone, and its candidate is not loaded yet."""
        if self._memory is not None:
            self.end()
            own_bytes = self._memory.own_bytes()
            self._before = _Reading(own_bytes, settled(self._memory.free_bytes))
            self._foreign_bytes = self._memory.total_bytes() - self._before.free_bytes - own_bytes

    def end(self) -> None:
        """Stop watching: the job is over."""
        self._before = None
        self._planned_bytes = self._excess_bytes = self._held_bytes = self._foreign_bytes = 0

    def plan(self, buffers_bytes: int, reference_peak_bytes: int) -> None:
        """Note what the case needs: its buffers, and the peak memory of torch's own operator beyond them."""
        self._planned_bytes = _BUFFER_COPIES * buffers_bytes + _REFERENCE_PEAKS * reference_peak_bytes

    def is_excused(self) -> bool:
        """Whether no candidate is to blame for the lack of memory. Call it at the moment of the failure."""
        if self._memory is None or (self._before is None and not self._may_hold_memory()):
            return True
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return True  # a failed recording skips no check: calls are made one by one
        self.update()
        return self._before is not None and self._excess_bytes <= 0 and not self._others_hold_much

    def update_if_out_of_memory(self, error: BaseException) -> None:
        """Call :meth:`update` if the error is a lack of memory. Must precede the end of the candidate's worker."""
        if is_out_of_memory(error):
            self.update()

    def update(self) -> None:
        """Compute what the candidate holds, and remember the largest excess over what it may hold."""
        if self._before is None or self._memory is None:
            return
        # Wait for stable memory: a worker of the judge, or a reader of problems, may just have ended.
        now = _Reading(self._memory.own_bytes(), settled(self._memory.free_bytes))
        held = self._before.free_bytes - now.free_bytes - (now.own_bytes - self._before.own_bytes)
        excess = held - self._allowed_bytes
        if excess > self._excess_bytes:
            self._held_bytes, self._excess_bytes = held, excess

    @property
    def _others_hold_much(self) -> bool:
        """Whether other processes hold much memory; also candidates of other judges, which keep it while paused."""
        return self._memory is not None and self._foreign_bytes > _SHARE_OF_OTHERS * self._memory.total_bytes()

    @property
    def _allowed_bytes(self) -> int:
        """What the candidate and the judge's own workers may hold together: the driver does not tell them apart."""
        assert self._memory is not None
        overhead_bytes = max(_LEAST_ALLOWED_BYTES, int(_ALLOWED_SHARE * self._memory.total_bytes()))
        return (1 + self._own_workers()) * self._planned_bytes + overhead_bytes

    def verdict_for_crash(self, crash: schema.Crashed) -> schema.Verdict:
        """The verdict if the candidate itself lacked memory: its crash, unless other processes held much memory."""
        return self._others_to_blame if self.is_watched and self._others_hold_much else crash

    @property
    def _others_to_blame(self) -> schema.Unjudged:
        held = _gib(self._foreign_bytes)
        return schema.Unjudged(f"other processes hold {held} of the device's memory. End them, or use fewer judges")

    def verdict(self, stage: schema.Stage, error: Exception) -> schema.Verdict:
        """The verdict for a job that lacked memory although it had the device alone."""
        if self._excess_bytes <= 0 and self._others_hold_much:
            return self._others_to_blame
        if self._excess_bytes <= 0:
            return schema.Unsupported("reference", f"the device is too small for this case: {error}"[:500])
        allowed_bytes = self._held_bytes - self._excess_bytes
        message = (
            f"the kernel held {_gib(self._held_bytes)} of the device's memory between calls; the case needs at most "
            f"{_gib(allowed_bytes)}, so the reference lacked memory. Free what a call does not return"
        )
        return schema.Crashed(stage, "memory", message)


def settled(read: Callable[[], int]) -> int:
    """Read a number of bytes until it no longer grows, for a bounded time."""
    until, found = time.monotonic() + _MOST_SETTLING_SECONDS, read()
    while time.monotonic() < until:
        time.sleep(_STABLE_SECONDS)
        before, found = found, read()
        if found <= before:
            break
    return found


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
