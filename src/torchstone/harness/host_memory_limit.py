"""Limits the host memory that all processes of one benchmark use together."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.supervisor.ptrace_freezing import descendants

_SHARE = 0.75
"""Default limit as a share of the memory of the machine or container."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class OverMemoryError(Exception):
    """The processes of a benchmark use more memory than their limit; the text is one line."""


class MemoryLimit:
    """Raises `OverMemoryError` if the processes below a keeper exceed the limit. Called repeatedly with its pid."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes or default_limit_bytes()

    def __call__(self, keeper: int) -> None:
        pids = descendants(keeper)
        # The first sum counts shared pages once per process. Only if it exceeds the limit, shared pages are divided.
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
