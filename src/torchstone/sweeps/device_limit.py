"""Gives the device's limit for a call: bytes to move, measured latency, and bandwidth of memory (not of caches)."""

from __future__ import annotations

from pathlib import Path

import torch

from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.schema.measurement import SpeedOfLight
from torchstone.sweeps.operations import Moved

DOUBTFUL_PERCENT = 105.0
"""Percent of the limit beyond which the limit itself is doubted: it was measured too low, and is measured again."""
_BEYOND_CACHES = 1 << 62
"""A working set larger than any that is measured: caches are cold, so the ceiling is that of the largest."""


class Light:
    """The measured ceilings of a device, as limits of calls that move given numbers of bytes."""

    def __init__(self, device: torch.device, name: str, threads: int, folder: str | None) -> None:
        kept = KeptCeilings(None if folder is None else Path(folder), name, threads, "sweep", str(torch.__version__))
        self._ceilings = DeviceCeilings(device, threads, (), kept)

    def of(self, moved: Moved) -> SpeedOfLight:
        """What the device allows for a call that moves so much."""
        ceilings = self._ceilings.get(None)
        return SpeedOfLight(
            *moved,
            bytes_per_second=ceilings.bytes_per_second(*moved, 0, _BEYOND_CACHES),
            latency_ns=ceilings.latency_ns,
            measured_unix_ns=ceilings.measured_unix_ns,
        )

    def doubt(self) -> None:
        """Something was faster than the limit: measure the ceilings again at the next request. Done only once."""
        self._ceilings.doubt()
