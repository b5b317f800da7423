"""Attribution: which operators and device kernels did a candidate's work. From a separate call that is never timed.

A report, not a proof. It comes from the candidate's own process, and a kernel can detect that it is watched. It shows
honest authors and trainers of models where the time goes.
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
    """`library`: torch's and its vendors'; `cuda`: any other compiled kernel."""
    launches: Count
    device_ns: Count


class KernelCode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources that a device kernel takes of a multiprocessor. None: neither compiler nor profiler reports it."""

    name: str
    registers_per_thread: Count | None = None
    spilled_registers: Count | None = None
    """Four-byte words that each thread keeps in memory because registers are full. Reported by Triton only."""
    shared_memory_bytes: Count | None = None
    """Of one block."""
    warps: Count | None = None
    """Of one block."""
    stages: Count | None = None
    """Of Triton's software pipeline."""
    grid: tuple[Count, Count, Count] | None = None
    """Blocks of a launch; reported by the profiler only."""
    block: tuple[Count, Count, Count] | None = None
    """Threads of a block; reported by the profiler only."""
    occupancy_percent: Percent | None = None
    """Estimated by the profiler."""


class Attribution(msgspec.Struct, frozen=True):
    """The operators, kernels and memory of one call of the candidate."""

    operators: dict[str, Count]
    """torch operators that computed something, with how often; allocations and views are left out."""
    kernels: tuple[KernelShare, ...] = ()
    """Device kernels; empty on the CPU, or where there is no profiler."""
    threads_started: Count = 0
    streams: Count = 0
    """Device streams that kernels ran on."""
    note: str = ""
    """What could not be seen, and why."""
    code: tuple[KernelCode, ...] = ()
    """Registers, shared memory and launch sizes of the kernels that ran, where they are known."""
    peak_memory_bytes: Count | None = None
    """Most memory allocated at once beyond the arguments, results included, by torch's allocator for the device. Memory
    from elsewhere is not counted. None: unknown."""
    reference_peak_memory_bytes: Count | None = None
    """The same for torch's own operator, measured by the judge."""

    @property
    def library_share(self) -> float | None:
        """Share of device time in torch's and its vendors' kernels; None where no kernel was seen."""
        total = sum(kernel.device_ns for kernel in self.kernels)
        library = sum(kernel.device_ns for kernel in self.kernels if kernel.kind == "library")
        return library / total if total else None
