"""Limits the host memory that all processes of one benchmark use together."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.supervisor.ptrace_freezing import descendants

_SHARE = 0.75
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class OverMemoryError(Exception):
    """The processes of a benchmark use more than they may; one line."""


class MemoryLimit:
    """The limit. While a benchmark works, it is called again and again with the pid of the keeper of its processes."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes or default_limit_bytes()

    def __call__(self, keeper: int) -> None:
        pids = descendants(keeper)
        # Pages shared since a fork count in every process at first; only if that is too much, look closely.
        if sum(resident_bytes(pid) for pid in pids) <= self.limit_bytes:
            return
        used = sum(proportional_bytes(pid) for pid in pids)
        if used > self.limit_bytes:
            raise OverMemoryError(f"used {used >> 20} MiB of host memory; its limit is {self.limit_bytes >> 20} MiB")


def default_limit_bytes() -> int:
    """Three quarters of the machine's memory, or of the container's."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or the word `max`
            there = min(there, int(Path(path).read_text()))
    return int(_SHARE * there)
