"""Reads how much memory the host has, and how much of it is free by Linux's own estimate (MemAvailable)."""

from __future__ import annotations

import os
import re
from pathlib import Path

USABLE_SHARE = 0.6
"""Share of the host's free memory that we use at most: others use the machine, too."""


def free_host_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What the host's memory has left."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def usable_host_bytes() -> int:
    """What processes of ours may still take of the host's memory."""
    return int(USABLE_SHARE * free_host_bytes())


def host_bytes() -> int:
    """All of the host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
