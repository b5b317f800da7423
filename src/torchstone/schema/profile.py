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
"""`absent`: the tool is not on this machine. `unavailable`: it is installed, but cannot be used here or for this
kernel. `failed`: the kernel raised, crashed or took too long under the tool."""


class ProfiledKernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel in the profiled calls; launches of the same shape are added up. None: the profiler does not report it.

    Percentages are means over launches, weighted by their time.
    """

    name: str
    """The profiler's name for it, cut after 300 characters."""
    kind: Literal["kernel", "copy", "operator"]
    """`copy`: a memory copy or fill on the device. `operator`: torch's own; its CPU time is without what it calls."""
    launches: Tally
    """Number of launches in all profiled calls."""
    profiled_ns: Tally
    """Total time of all launches under the profiler. Not a measurement."""
    sm_percent: Percent | None = None
    """Throughput of the multiprocessors, in percent of the highest that they can sustain."""
    memory_percent: Percent | None = None
    """Throughput of device memory, in percent of the highest that it can sustain."""
    l2_hit_percent: Percent | None = None
    occupancy_percent: Percent | None = None
    """Active warps, in percent of the most that a multiprocessor holds. The torch profiler's figure is an estimate."""
    registers_per_thread: Tally | None = None
    grid_size: Tally | None = None
    """Number of blocks."""
    block_size: Tally | None = None
    """Number of threads of a block."""


class ProfilerResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one profiler found."""

    profiler: str
    status: ProfilerStatus
    notice: str = ""
    """Message for the user: why there is no profile, or what it lacks."""
    version: str = ""
    files: tuple[str, ...] = ()
    """Names of files in the profile's folder."""
    kernels: tuple[ProfiledKernel, ...] = ()
    """Kernels, those with the longest time first."""
    kernels_left_out: Tally = 0
    """Number of further kernels."""
    sandboxed: bool = False
    """Whether the kernel ran in a worker's sandbox under this profiler."""
    layers: tuple[Layer, ...] = ()
    """The layers of that sandbox."""
    log_tail: str = ""
    """The end of the printed output of kernel and profiler."""


class Profile(msgspec.Struct, frozen=True):
    """One kernel on one case, under each requested profiler. The content of `profile.json`."""

    case: Case
    implementation: ImplementationReference
    device: str
    """``cpu`` or ``cuda:0``."""
    calls: int
    """Number of profiled calls."""
    warmup_calls: int
    """Number of calls before them, which were not profiled."""
    threads: int
    isolation: IsolationLevel
    """The requested isolation."""
    results: tuple[ProfilerResult, ...]
    manifest_key: str
    """Key of the `manifest.json` beside it."""
    began_unix_ns: int
    ended_unix_ns: int
    format_version: int = FORMAT_VERSION
    kind: Literal["profile"] = "profile"
