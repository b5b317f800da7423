"""Attribution: which operators and device kernels did a candidate's work. From a separate call that is never timed.

Attribution is a report, not a proof. It comes from the candidate's own process, and a kernel can detect attribution. It
shows honest authors and trainers of models where the time goes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Bounded, because the candidate's process reports it."""
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class KernelShare(msgspec.Struct, frozen=True):
    """One device kernel's part in a call."""

    name: str
    kind: Literal["library", "triton", "cuda", "copy"]
    """`library`: kernels of torch and its vendors. `cuda`: any other compiled kernel."""
    launches: Count
    device_ns: Count


class KernelCode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources that a device kernel uses on a multiprocessor. None: neither compiler nor profiler reports it."""

    name: str
    registers_per_thread: Count | None = None
    spilled_registers: Count | None = None
    """Four-byte words that each thread keeps in memory because registers are full. Reported by Triton only."""
    shared_memory_bytes: Count | None = None
    """Shared memory of one block."""
    warps: Count | None = None
    """Warps of one block."""
    stages: Count | None = None
    """Stages of Triton's software pipeline."""
    grid: tuple[Count, Count, Count] | None = None
    """Blocks of a launch in x, y and z; reported by the profiler only."""
    block: tuple[Count, Count, Count] | None = None
    """Threads of a block in x, y and z; reported by the profiler only."""
    occupancy_percent: Percent | None = None
    """Estimated by the profiler."""


class Attribution(msgspec.Struct, frozen=True):
    """The operators, kernels and memory of one call of the candidate."""

    operators: dict[str, Count]
    """torch operators that computed something -> number of calls. Allocations and views are left out."""
    kernels: tuple[KernelShare, ...] = ()
    """Device kernels; empty on the CPU, or if there is no profiler."""
    threads_started: Count = 0
    streams: Count = 0
    """Device streams that kernels ran on."""
    note: str = ""
    """What could not be observed, and why."""
    code: tuple[KernelCode, ...] = ()
    """Registers, shared memory and launch sizes of the kernels that ran, as far as known."""
    peak_memory_bytes: Count | None = None
    """Peak memory of torch's allocator for the device during the call, without the arguments, with the results. Memory
    from elsewhere is not counted. None: unknown."""
    reference_peak_memory_bytes: Count | None = None
    """The peak memory of torch's own operator, measured by the judge."""

    @property
    def library_share(self) -> float | None:
        """Share of device time in kernels of torch and its vendors; None if no kernel was observed."""
        total = sum(kernel.device_ns for kernel in self.kernels)
        library = sum(kernel.device_ns for kernel in self.kernels if kernel.kind == "library")
        return library / total if total else None
