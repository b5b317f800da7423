"""Gives the device's limit for a call: bytes to move, measured latency, and bandwidth of memory (not of caches)."""

from __future__ import annotations

from pathlib import Path

import torch

from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.schema.measurement import SpeedOfLight
from torchstone.sweeps.operations import Moved

DOUBTFUL_PERCENT = 105.0
"""Efficiency in percent above which the limit counts as measured too low, and is measured again."""
_UNCACHED_WORKING_SET_BYTES = 1 << 62
"""Working set larger than any that is measured. Caches are cold, so the ceiling for the largest one applies."""


class SpeedLimits:
    """The measured ceilings of a device, as limits of calls that move given numbers of bytes."""

    def __init__(self, device: torch.device, name: str, threads: int, folder: str | None) -> None:
        kept = KeptCeilings(None if folder is None else Path(folder), name, threads, "sweep", str(torch.__version__))
        self._ceilings = DeviceCeilings(device, threads, (), kept)

    def of(self, moved: Moved) -> SpeedOfLight:
        """The device's limit for a call that moves these bytes."""
        ceilings = self._ceilings.get(None)
        return SpeedOfLight(
            *moved,
            bytes_per_second=ceilings.bytes_per_second(*moved, 0, _UNCACHED_WORKING_SET_BYTES),
            latency_ns=ceilings.latency_ns,
            measured_unix_ns=ceilings.measured_unix_ns,
        )

    def request_new_measurement(self) -> None:
        """Measure the ceilings again at the next request, because a call was faster than the limit. Done only once."""
        self._ceilings.request_new_measurement()
