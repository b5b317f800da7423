"""Reserves the memory that a job needs, so that the judges and other processes of a machine take turns.

A job reserves memory for its arguments before they are drawn, and for the rest after torch's first result. A judge
waits for memory only before a job begins, or begins again. Then it has no place in the lane (the lock of the device),
and has given up its reservation. So a judge that measures never waits for one that waits for memory.

To give memory back, a judge ends the workers that hold some. New workers must then open the device, which takes longer
than to check a kernel. So a job's reservation on a device is kept for the next job, until another process waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torchstone.judge_process.memory_blame import DeviceMemory, settled
from torchstone.processes.free_memory import host_bytes
from torchstone.processes.memory_ledger import MemoryLedger, Reservation, device_capacity, small_bytes


class MoreMemoryNeededError(Exception):
    """A job needs more memory than it has reserved, and others hold it: the job must begin again, and wait for it."""


class JobMemory:
    """The reservation of one judge, for one job at a time."""

    def __init__(self, ledger: MemoryLedger | None, memory: DeviceMemory | None, empty: Callable[[], None]) -> None:
        """``ledger``: None if memory is not shared. ``memory``: the device's; None for the host's. ``empty``: frees the
        memory that is reserved, before the reservation is released.
        """
        self._ledger, self._memory, self._empty = ledger, memory, empty
        total_bytes = host_bytes() if memory is None else memory.total_bytes()
        self._small_bytes = small_bytes(total_bytes)
        self._capacity_bytes = None if memory is None else device_capacity(total_bytes)
        self._reserved: Reservation | None = None
        self._is_kept = False
        """Whether the reservation is from an earlier job."""
        self._needed_at_retry: tuple[str, int] | None = None
        """Key of the job that must begin again, and the bytes that it needs."""
        self.waits = False
        """Whether this judge waits for memory now, which can take any time."""
        self.waited_seconds = 0.0
        """Total time for which this judge has waited for memory."""

    @property
    def is_everything(self) -> bool:
        """Whether no other process can have a reservation beside this one."""
        if self._ledger is None:
            return True
        most = self._capacity_bytes
        return self._reserved is not None and most is not None and self._reserved.size_bytes >= most

    def _covers(self, job_key: str, least_bytes: int) -> bool:
        """Whether a job needs no further reservation: it is small, or the reservation suffices."""
        needed = self._needed(job_key, least_bytes)
        held = self._small_bytes if self._reserved is None else self._reserved.size_bytes
        return self._ledger is None or needed <= held

    def hold(self, job_key: str, least_bytes: int) -> None:
        """Reserve at least this much before a job begins. May wait, so the caller must not be in the lane."""
        self.give_back_if_wanted()
        self._is_kept = False
        if self._covers(job_key, least_bytes):
            return
        needed = self._needed(job_key, least_bytes)
        if self._reserved is None or not self._reserved.enlarge(needed):
            self._wait_and_reserve(needed)

    def hold_everything(self) -> None:
        """Reserve the whole device, for a job that lacked memory. The caller must not be in the lane."""
        if self._capacity_bytes is not None and not self.is_everything:
            self._wait_and_reserve(self._capacity_bytes)

    def require(self, job_key: str, needed_bytes: int) -> None:
        """Reserve this much for the job in progress. Raises :class:`MoreMemoryNeededError` if it must wait for it."""
        if self._ledger is None or self._covers(job_key, needed_bytes):
            return
        needed = self._needed(job_key, needed_bytes)
        if self._reserved is None:
            self._reserved = self._ledger.try_reserve(needed)
            if self._reserved is not None:
                return
        elif self._reserved.enlarge(needed):
            return
        self._needed_at_retry = job_key, needed
        raise MoreMemoryNeededError

    def release(self) -> None:
        """The job is over: give its reservation back, or keep it until another process waits for memory."""
        if self._reserved is None:
            return
        if self._memory is None or self.is_everything:
            self._empty()
            self._release()
            return
        self._is_kept = True
        self.give_back_if_wanted()

    @property
    def is_kept(self) -> bool:
        """Whether there is a reservation without a job."""
        return self._is_kept

    @property
    def reserved_bytes(self) -> int:
        """Size of the reservation: for the current job, or kept from an earlier one."""
        return 0 if self._reserved is None else self._reserved.size_bytes

    def give_back_if_wanted(self) -> None:
        """Between jobs: give kept memory back if another process waits for it."""
        if self._is_kept and self._ledger is not None and self._ledger.is_wanted():
            self._empty()
            self._release()

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.release()
            self._reserved, self._is_kept = None, False

    def _needed(self, job_key: str, least_bytes: int) -> int:
        """Bytes to reserve for the job: at most what can be reserved of the device, even if the job needs more."""
        known = (
            self._needed_at_retry[1] if self._needed_at_retry is not None and self._needed_at_retry[0] == job_key else 0
        )
        needed = max(known, least_bytes)
        return needed if self._capacity_bytes is None else min(needed, self._capacity_bytes)

    def _wait_and_reserve(self, size_bytes: int) -> None:
        assert self._ledger is not None
        self._empty()  # an earlier job may have left memory in use, or used more than was reserved
        self._release()
        began, self.waits = time.monotonic(), True
        try:
            self._reserved = self._ledger.reserve(size_bytes)
            if self._memory is not None and self._memory.free_bytes() < size_bytes:
                settled(self._memory.free_bytes)  # processes that have just ended free theirs with a delay
        finally:
            self.waits = False
            self.waited_seconds += time.monotonic() - began
