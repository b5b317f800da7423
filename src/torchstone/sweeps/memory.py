"""Computes how much memory a point of a sweep takes and how many copies of its inputs fit, before allocating any."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

BEYOND_CACHE = 3
"""Size of all copies together, in multiples of the device's cache, so that every call finds a cold cache."""
USABLE_SHARE = 0.85
"""Share of the free memory that a point may use. The rest is for libraries and fragmentation."""
MOST_COPIES = 2048
"""Most copies, since preparing calls takes host time. Copies of tiny inputs may then fit in the cache."""
_WIDE_BYTES = 8
_WIDE_TENSORS = 5
"""Tensors in float64 that a comparison holds at once, each with as many elements as inputs and results together."""


class Footprint(NamedTuple):
    """Memory of one call at a point."""

    input_bytes: int
    """Bytes of inputs; for a backward pass also of the forward pass's result."""
    result_bytes: int
    """Bytes of results and gradients."""
    itemsize: int

    @property
    def total_bytes(self) -> int:
        return self.input_bytes + self.result_bytes

    def wide_bytes(self) -> int:
        """Bytes that a comparison in float64 takes besides the inputs."""
        return self.total_bytes // self.itemsize * _WIDE_BYTES * _WIDE_TENSORS


def wanted_copies(footprint: Footprint, cache_bytes: int) -> int:
    """Number of copies of a call that together exceed the cache, at most `MOST_COPIES`."""
    return min(MOST_COPIES, max(1, math.ceil(BEYOND_CACHE * cache_bytes / max(1, footprint.total_bytes))))


def needed_bytes(footprint: Footprint, copies: int, implementations: int) -> int:
    """Bytes of the inputs of all copies, and of the results of all calls of every implementation, alive together."""
    results = max(2, copies) * implementations * footprint.result_bytes
    return copies * footprint.input_bytes + results


def fitting_copies(footprint: Footprint, cache_bytes: int, implementations: int, free_bytes: int) -> int:
    """Number of copies: as many as wanted, halved until they fit. 0: not even one fits."""
    copies, usable = wanted_copies(footprint, cache_bytes), int(USABLE_SHARE * free_bytes)
    while copies and needed_bytes(footprint, copies, implementations) > usable:
        copies //= 2
    return copies


def too_large(footprint: Footprint, implementations: int, free_bytes: int) -> str:
    """The reason of a skipped point: memory that it needs, and memory that can be used."""
    needed = needed_bytes(footprint, 1, implementations)
    return f"{needed / 1e9:.2f} GB are needed, {USABLE_SHARE * free_bytes / 1e9:.2f} GB of memory can be used"


def host_cache_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """The largest cache that a core of the host has, its own or shared."""
    sizes = [path.read_text().strip() for path in caches.glob("index*/size")]
    return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=32 << 20)
