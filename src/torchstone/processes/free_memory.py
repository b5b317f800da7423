"""Reads how much memory the host has, and how much of it is free by Linux's own estimate (MemAvailable)."""

from __future__ import annotations

import os
import re
from pathlib import Path

USABLE_SHARE = 0.6
"""Largest share of the host's free memory that Torchstone uses: other programs use the machine, too."""


def free_host_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Free bytes of the host's memory."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def usable_host_bytes() -> int:
    """Bytes of the host's memory that Torchstone's processes may still use."""
    return int(USABLE_SHARE * free_host_bytes())


def host_bytes() -> int:
    """Total bytes of the host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
