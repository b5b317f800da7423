"""A profile: the figures that profilers collected for one kernel on one case. It is stored apart from verdicts.

Profilers slow the kernel down, and most figures come from the kernel's own process. So a profile shows where the time
goes, not how long a call takes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from torchstone.schema.case import Case
from torchstone.schema.codec import FORMAT_VERSION
from torchstone.schema.implementation import ImplementationReference
from torchstone.schema.job import IsolationLevel
from torchstone.schema.record import Layer

Tally = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Percent = Annotated[float, msgspec.Meta(ge=0)]

ProfilerStatus = Literal["profiled", "absent", "unavailable", "failed"]
"""`absent`: the tool is not on this machine. `unavailable`: it is, and cannot be used here or for this. `failed`: the
kernel raised, crashed or took too long under it."""


class ProfiledKernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel's part in the profiled calls, launches of the same shape together. None: this profiler does not tell.

    Percentages are means over launches, weighted by their time.
    """

    name: str
    """As the profiler names it, cut after 300 characters."""
    kind: Literal["kernel", "copy", "operator"]
    """`copy`: a memory copy or fill on the device. `operator`: torch's own, its time on the CPU less what it calls."""
    launches: Tally
    """In all profiled calls together."""
    profiled_ns: Tally
    """In all launches together, under the profiler. Not a measurement."""
    sm_percent: Percent | None = None
    """Throughput of the multiprocessors, of the most that they can sustain."""
    memory_percent: Percent | None = None
    """Throughput of device memory, likewise."""
    l2_hit_percent: Percent | None = None
    occupancy_percent: Percent | None = None
    """Warps that were active, of the most that a multiprocessor holds. The torch profiler's is an estimate."""
    registers_per_thread: Tally | None = None
    grid_size: Tally | None = None
    """Blocks."""
    block_size: Tally | None = None
    """Threads of a block."""


class ProfilerResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one profiler found."""

    profiler: str
    status: ProfilerStatus
    notice: str = ""
    """What the user should know: why there is no profile, or what it lacks."""
    version: str = ""
    files: tuple[str, ...] = ()
    """Names in the profile's folder."""
    kernels: tuple[ProfiledKernel, ...] = ()
    """The ones that took longest first."""
    kernels_left_out: Tally = 0
    """How many more there were."""
    sandboxed: bool = False
    """Whether the kernel ran in a worker's sandbox while this profiler watched."""
    layers: tuple[Layer, ...] = ()
    """The layers of that sandbox."""
    log_tail: str = ""
    """The last of what kernel and profiler printed."""


class Profile(msgspec.Struct, frozen=True):
    """One kernel on one case, as every profiler that was asked for saw it. The content of `profile.json`."""

    case: Case
    implementation: ImplementationReference
    device: str
    """``cpu`` or ``cuda:0``."""
    calls: int
    """That were profiled."""
    warmup_calls: int
    """That came before and were not."""
    threads: int
    isolation: IsolationLevel
    """That was asked for."""
    results: tuple[ProfilerResult, ...]
    manifest_key: str
    """Of the `manifest.json` beside it."""
    began_unix_ns: int
    ended_unix_ns: int
    format_version: int = FORMAT_VERSION
    kind: Literal["profile"] = "profile"
