"""Decides what is to blame when a device lacks memory: the candidate, other processes, or the size of the case.

A candidate must not have checks skipped by holding memory. So a lack of memory ends the trial, and the job is tried
again with the device to itself and nothing done beside the candidate. There the judge knows how much memory the
candidate holds: what was free before it was loaded, less what is free now and what the judge has taken since. More than
the case needs is the candidate's failure. Otherwise the call does not fit on this device, as without a candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from torchstone import schema
from torchstone.calls.torch_errors import is_out_of_memory

_SHARE_TO_HOLD = 1 / 16
_LEAST_TO_HOLD_BYTES = 1 << 30
"""What any candidate may hold besides the case's own memory: its context, libraries and what its allocator keeps. The
larger of this and that share of the device."""
_SHARE_OF_OTHERS = 1 / 4
"""Of a device, what other processes may hold before a lack of memory is taken for theirs."""
_COPIES = 4
"""Of the buffers of a case: the judge's block itself, results of calls, and what captured calls keep for themselves."""
_REFERENCE_PEAKS = 2
"""A candidate may keep twice what torch's own operator needs."""
_SETTLE_SECONDS = 10.0
_SETTLED_SECONDS = 0.3
"""A driver gives memory of an ended process back after a while: free memory counts as known once it has stayed so."""


class DeviceMemory(Protocol):
    """What is known of a device's memory. Tests give another."""

    def free_bytes(self) -> int:
        """What nobody has."""
        ...

    def own_bytes(self) -> int:
        """What this process has, after it has given back what it does not use."""
        ...

    def total_bytes(self) -> int: ...


class CudaMemory:
    """A CUDA device, as its driver and torch's allocator of this process tell."""

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
    """Decides for one judge whether a lack of device memory says anything about the reference."""

    def __init__(
        self,
        memory: DeviceMemory | None,
        may_hold_memory: Callable[[], bool],
        own_workers: Callable[[], int] = lambda: 0,
    ) -> None:
        """``memory``: None for the host, where workers have a limit. ``may_hold_memory``: whether another process
        of ours could hold memory of the device now: a candidate, another judge, a reader of problems.
        ``own_workers``: in how many workers the judge itself calls the case now, beside the candidate's.
        """
        self._memory = memory
        self._may_hold_memory, self._own_workers = may_hold_memory, own_workers
        self._before: _Reading | None = None
        """Before the candidate was loaded, with the device to itself. None: others may use it."""
        self._planned_bytes = self._excess_bytes = self._held_bytes = self._foreign_bytes = 0

    @property
    def is_watched(self) -> bool:
        """Whether the job has the device to itself because memory was lacking: then nothing is done beside a call."""
        return self._before is not None

    @property
    def tells(self) -> bool:
        """Whether the memory of the device can be watched at all."""
        return self._memory is not None

    def watch(self) -> None:
        """The job is tried again. It has the device alone, and its candidate is not loaded yet."""
        if self._memory is not None:
            self.end()
            own_bytes = self._memory.own_bytes()
            self._before = _Reading(own_bytes, settled(self._memory.free_bytes))
            self._foreign_bytes = self._memory.total_bytes() - self._before.free_bytes - own_bytes

    def end(self) -> None:
        """The job is over."""
        self._before = None
        self._planned_bytes = self._excess_bytes = self._held_bytes = self._foreign_bytes = 0

    def plan(self, buffers_bytes: int, reference_peak_bytes: int) -> None:
        """What the case needs: its buffers, and what torch's own operator takes beyond them."""
        self._planned_bytes = _COPIES * buffers_bytes + _REFERENCE_PEAKS * reference_peak_bytes

    def is_excused(self) -> bool:
        """Whether the device lacks memory through no fault of a candidate. Asked at the moment of the failure."""
        if self._memory is None or (self._before is None and not self._may_hold_memory()):
            return True
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return True  # a recording that fails leads to another way of calling, and skips nothing
        self.look()
        return self._before is not None and self._excess_bytes <= 0 and not self._lacks_because_of_others

    def look_if(self, error: BaseException) -> None:
        """Look, if this is what memory was lacking for. To be called before the candidate's worker is ended."""
        if is_out_of_memory(error):
            self.look()

    def look(self) -> None:
        """See what the candidate holds, and remember the most beyond what it may."""
        if self._before is None or self._memory is None:
            return
        # Settled: a worker of the judge's own, or a reader, may just have ended.
        now = _Reading(self._memory.own_bytes(), settled(self._memory.free_bytes))
        held = self._before.free_bytes - now.free_bytes - (now.own_bytes - self._before.own_bytes)
        excess = held - self._allowed_bytes
        if excess > self._excess_bytes:
            self._held_bytes, self._excess_bytes = held, excess

    @property
    def _lacks_because_of_others(self) -> bool:
        """Candidates of other judges among them, which stand still and keep what they have."""
        return self._memory is not None and self._foreign_bytes > _SHARE_OF_OTHERS * self._memory.total_bytes()

    @property
    def _allowed_bytes(self) -> int:
        """Of the candidate and of the judge's own workers: the driver does not tell them apart."""
        assert self._memory is not None
        free = max(_LEAST_TO_HOLD_BYTES, int(_SHARE_TO_HOLD * self._memory.total_bytes()))
        return (1 + self._own_workers()) * self._planned_bytes + free

    def instead_of(self, crash: schema.Crashed) -> schema.Verdict:
        """Of a candidate that lacked memory itself: its crash, unless others held much while it had the device."""
        return self._others if self.is_watched and self._lacks_because_of_others else crash

    @property
    def _others(self) -> schema.Unjudged:
        held = _gib(self._foreign_bytes)
        return schema.Unjudged(f"other processes hold {held} of the device's memory. End them, or use fewer judges")

    def verdict(self, stage: schema.Stage, error: Exception) -> schema.Verdict:
        """Of a job that lacked memory although it had the device to itself."""
        if self._excess_bytes <= 0 and self._lacks_because_of_others:
            return self._others
        if self._excess_bytes <= 0:
            return schema.Unsupported("reference", f"the device is too small for this case: {error}"[:500])
        allowed_bytes = self._held_bytes - self._excess_bytes
        message = (
            f"held {_gib(self._held_bytes)} of the device's memory between calls, of which the case needs at most "
            f"{_gib(allowed_bytes)}: the reference lacked memory. Free what a call does not return"
        )
        return schema.Crashed(stage, "memory", message)


def settled(read: Callable[[], int]) -> int:
    """A figure once it has stopped growing."""
    until, found = time.monotonic() + _SETTLE_SECONDS, read()
    while time.monotonic() < until:
        time.sleep(_SETTLED_SECONDS)
        before, found = found, read()
        if found <= before:
            break
    return found


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
