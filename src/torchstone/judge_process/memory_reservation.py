"""Reserves the memory that a job needs, so that the judges and other processes of a machine take turns.

It reserves for the arguments before anything is drawn, and for the rest after torch's first result. A judge waits for
memory only between jobs, or when it begins one again: without a place in the lane (the lock of the device), and after
it has given back what it had. So judges that measure never wait for one that waits for memory.

To empty memory means to end the workers that hold some, and to open the device in new ones takes longer than to check a
kernel. So what a job has reserved of a device is kept for the next job, until somebody waits for memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torchstone.judge_process.memory_blame import DeviceMemory, settled
from torchstone.processes.free_memory import host_bytes
from torchstone.processes.memory_ledger import MemoryLedger, Reservation, device_capacity, small_bytes


class MoreMemoryNeededError(Exception):
    """A job needs more than it has reserved, and others hold it: it must give back what it has, wait, begin again."""


class JobMemory:
    """What one judge has reserved, for one job at a time."""

    def __init__(self, ledger: MemoryLedger | None, memory: DeviceMemory | None, empty: Callable[[], None]) -> None:
        """``ledger``: None for a judge that shares nothing. ``memory``: of the device; None for the host's. ``empty``:
        gives back what lies in reserved memory, before it is released.
        """
        self._ledger, self._memory, self._empty = ledger, memory, empty
        total_bytes = host_bytes() if memory is None else memory.total_bytes()
        self._small_bytes = small_bytes(total_bytes)
        self._most_bytes = None if memory is None else device_capacity(total_bytes)
        self._reserved: Reservation | None = None
        self._is_kept = False
        """Whether that is from an earlier job."""
        self._wanted: tuple[str, int] | None = None
        """What a job that begins again needs."""
        self.waits = False
        """Whether others hold the memory: that can take any time."""
        self.waited_seconds = 0.0
        """For memory, since the beginning."""

    @property
    def is_everything(self) -> bool:
        """Whether no other process can have a reservation beside this one."""
        if self._ledger is None:
            return True
        most = self._most_bytes
        return self._reserved is not None and most is not None and self._reserved.size_bytes >= most

    def _covers(self, job_key: str, least_bytes: int) -> bool:
        """Whether nothing has to be reserved for a job before it begins: it is small, or has what it needs."""
        needed = self._needed(job_key, least_bytes)
        held = self._small_bytes if self._reserved is None else self._reserved.size_bytes
        return self._ledger is None or needed <= held

    def hold(self, job_key: str, least_bytes: int) -> None:
        """Reserve what a job is known to need, at least this much. Without a place in the lane."""
        self.give_back_if_wanted()
        self._is_kept = False
        if self._covers(job_key, least_bytes):
            return
        needed = self._needed(job_key, least_bytes)
        if self._reserved is None or not self._reserved.enlarge(needed):
            self._take(needed)

    def hold_everything(self) -> None:
        """The whole device, for a job that lacked memory. Without a place in the lane."""
        if self._most_bytes is not None and not self.is_everything:
            self._take(self._most_bytes)

    def require(self, job_key: str, needed_bytes: int) -> None:
        """A job turns out to need this much. Raises :class:`MoreMemoryNeededError` if it must wait for it."""
        if self._ledger is None or self._covers(job_key, needed_bytes):
            return
        needed = self._needed(job_key, needed_bytes)
        if self._reserved is None:
            self._reserved = self._ledger.try_reserve(needed)
            if self._reserved is not None:
                return
        elif self._reserved.enlarge(needed):
            return
        self._wanted = job_key, needed
        raise MoreMemoryNeededError

    def release(self) -> None:
        """The job is over: give back what was reserved for it, or keep it until it is wanted."""
        if self._reserved is None:
            return
        if self._memory is None or self.is_everything:
            self._empty()
            self._let_go()
            return
        self._is_kept = True
        self.give_back_if_wanted()

    @property
    def is_kept(self) -> bool:
        """Whether something is reserved that no job needs at the moment."""
        return self._is_kept

    @property
    def reserved_bytes(self) -> int:
        """For the job in hand, or kept from an earlier one."""
        return 0 if self._reserved is None else self._reserved.size_bytes

    def give_back_if_wanted(self) -> None:
        """Between jobs: give kept memory back if another process waits for it."""
        if self._is_kept and self._ledger is not None and self._ledger.is_wanted():
            self._empty()
            self._let_go()

    def _let_go(self) -> None:
        if self._reserved is not None:
            self._reserved.release()
            self._reserved, self._is_kept = None, False

    def _needed(self, job_key: str, least_bytes: int) -> int:
        """More than all of a device cannot be reserved: whether it suffices is seen then."""
        known = self._wanted[1] if self._wanted is not None and self._wanted[0] == job_key else 0
        needed = max(known, least_bytes)
        return needed if self._most_bytes is None else min(needed, self._most_bytes)

    def _take(self, size_bytes: int) -> None:
        assert self._ledger is not None
        self._empty()  # an earlier job may have left something, or taken more than was reserved
        self._let_go()
        began, self.waits = time.monotonic(), True
        try:
            self._reserved = self._ledger.reserve(size_bytes)
            if self._memory is not None and self._memory.free_bytes() < size_bytes:
                settled(self._memory.free_bytes)  # that of processes which have just ended
        finally:
            self.waits = False
            self.waited_seconds += time.monotonic() - began
