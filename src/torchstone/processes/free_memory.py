"""How much of the host's memory is left, by the kernel's own estimate."""

from __future__ import annotations

import re
from pathlib import Path


def free_host_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What the host's memory has left."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0
