"""Checks the memory and the number of processes of a worker, with all that it started, against its limits."""

from __future__ import annotations

import time

from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.schema import Limits
from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_failures import OverLimitError

WATCH_SECONDS = 0.05
"""Time between two checks of usage while the judge waits for a worker."""


class UsageLimits:
    """The limits of one worker, and the time of the next check."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next_check = time.monotonic() + WATCH_SECONDS

    def are_due(self, now: float) -> bool:
        """Whether the time of the next check has come."""
        return now >= self._next_check

    def check(self, warden_pid: int | None) -> None:
        """Raise OverLimitError if all processes of the worker together use too much. Forks do not evade this limit."""
        self._next_check = time.monotonic() + WATCH_SECONDS
        pids = self.count(warden_pid)
        limit = self._limits.memory_bytes
        # This sum counts pages shared since a fork in every process. Only if it is too large, an exact one is made.
        if sum(resident_bytes(pid) for pid in pids) > limit:
            used = self._used_bytes(pids, warden_pid)
            if used > limit:
                raise OverLimitError("memory", f"{used >> 20} MiB resident (limit {limit >> 20} MiB)")

    def count(self, warden_pid: int | None) -> list[int]:
        """The worker's processes, with the warden. Raises OverLimitError if they are too many."""
        pids = descendants(warden_pid) if warden_pid is not None else []
        if len(pids) > self._limits.processes:
            raise OverLimitError("processes", f"{len(pids)} processes (limit {self._limits.processes})")
        return pids

    def _used_bytes(self, pids: list[int], warden_pid: int | None) -> int:
        """Memory that the processes use together.

        A process that is forking delays reading its usage. Reading a hundred such processes took the judge 5 s, in
        which they became three hundred. So processes are counted again every :data:`WATCH_SECONDS`.
        """
        used = 0
        count_again = time.monotonic() + WATCH_SECONDS
        for pid in pids:
            used += proportional_bytes(pid)
            if time.monotonic() >= count_again:
                self.count(warden_pid)
                count_again = time.monotonic() + WATCH_SECONDS
        return used
