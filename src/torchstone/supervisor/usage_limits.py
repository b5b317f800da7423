"""Checks the memory and the number of processes of a worker, with all that it started, against its limits."""

from __future__ import annotations

import time

from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.schema import Limits
from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_failures import OverLimitError

WATCH_SECONDS = 0.05
"""How often usage is looked at while a worker is waited for."""


class UsageLimits:
    """The limits of one worker, and when its usage is to be looked at again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._watch_again = time.monotonic() + WATCH_SECONDS

    def are_due(self, now: float) -> bool:
        """Whether usage was not looked at for a while."""
        return now >= self._watch_again

    def check(self, warden_pid: int | None) -> None:
        """Count memory and processes of the whole tree; a limit per process alone could be forked around."""
        self._watch_again = time.monotonic() + WATCH_SECONDS
        pids = self.count(warden_pid)
        limit = self._limits.memory_bytes
        # Pages shared since a fork are counted in every process at first; only if that is too much, look closely.
        if sum(resident_bytes(pid) for pid in pids) > limit:
            used = self._used_bytes(pids, warden_pid)
            if used > limit:
                raise OverLimitError("memory", f"{used >> 20} MiB resident (limit {limit >> 20} MiB)")

    def count(self, warden_pid: int | None) -> list[int]:
        """Its processes. Raises OverLimitError if they are too many."""
        pids = descendants(warden_pid) if warden_pid is not None else []
        if len(pids) > self._limits.processes:
            raise OverLimitError("processes", f"{len(pids)} processes (limit {self._limits.processes})")
        return pids

    def _used_bytes(self, pids: list[int], warden_pid: int | None) -> int:
        """What they use together. A process that forks lets nobody look for a while: a hundred of them took the judge
        5 s, in which they became three hundred. So they are counted again where looking takes long.
        """
        used = 0
        count_again = time.monotonic() + WATCH_SECONDS
        for pid in pids:
            used += proportional_bytes(pid)
            if time.monotonic() >= count_again:
                self.count(warden_pid)
                count_again = time.monotonic() + WATCH_SECONDS
        return used
