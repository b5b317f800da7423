"""Limits the host memory that all processes of one benchmark use together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.supervisor.ptrace_freezing import descendants

_SHARE = 0.75
"""Default limit as a share of the memory of the machine or container."""
_OWN_GROUPS = Path("/proc/self/cgroup")
"""Names the control groups of this process, one line for each hierarchy."""
_GROUPS = Path("/sys/fs/cgroup")


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


def default_limit_bytes(own_groups: Path = _OWN_GROUPS, groups: Path = _GROUPS) -> int:
    """Three quarters of the machine's memory, or of what the control groups of this process allow."""
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE * min([machine_bytes, *_group_limits_bytes(own_groups, groups)]))


def _group_limits_bytes(own_groups: Path, groups: Path) -> Iterator[int]:
    """Memory limits of this process's control groups and the groups around them: container, service or batch job."""
    with contextlib.suppress(OSError, ValueError):
        for line in own_groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                hierarchy, name = groups, "memory.max"
            elif "memory" in controllers.split(","):
                hierarchy, name = groups / "memory", "memory.limit_in_bytes"
            else:
                continue
            own = hierarchy / path.lstrip("/")
            for group in (own, *(each for each in own.parents if each.is_relative_to(hierarchy))):
                with contextlib.suppress(OSError, ValueError):  # not visible here, or the word `max`
                    yield int((group / name).read_text())
