"""The request to the process that profiles a sweep: which calls to make, under which profiler. No torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.sweep import SweepPoint
from torchstone.sweeps.process_messages import Open

SweepProfiler = Literal["torch", "ncu", "nsys"]
TABLE = "torch_operators.txt"
"""torch's table of operators, `key_averages`."""
TRACE = "torch_trace.json"


class ProfiledCall(msgspec.Struct, frozen=True):
    """One implementation at one point."""

    point: SweepPoint
    implementation: str


class SweepProfileRequest(msgspec.Struct, frozen=True):
    """Request: make these calls under a profiler."""

    opening: Open
    calls: tuple[ProfiledCall, ...]
    profiler: SweepProfiler
    folder: str
    """For the files of torch's profiler. Other tools write their own."""
    seconds: int
    """The process ends itself after this long."""
