"""Profiles with Nsight Compute (ncu): how busy multiprocessors and memory were, per kernel. Keeps the `.ncu-rep`.

ncu runs each kernel several times with restored memory and empty caches, so its time differs from that in a program.
The GPU's clock rates are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec

from torchstone.profiling.base import NAME_CHARACTERS, Subject, weighted_mean
from torchstone.profiling.nsight import Tool, UnreadableTableError, caution, profile_with
from torchstone.profiling.profiler_csv import number, rows_after, whole
from torchstone.schema import ProfiledKernel, ProfilerResult

TIME = "gpu__time_duration.sum"
SHARES = {
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
SHAPES = {
    "registers_per_thread": "launch__registers_per_thread",
    "grid_size": "launch__grid_size",
    "block_size": "launch__block_size",
}
"""Field of a kernel -> metric. Launches that differ in these are listed separately."""

COUNTERS_REFUSED = (
    "the driver does not let you read performance counters. Run as root (in a container: with SYS_ADMIN), or have "
    "NVreg_RestrictProfilingToAdminUsers=0 set."
)
"""Notice that applies to every subject on this machine."""
MOST_LAUNCHES = 1000
"""Most launches that ncu profiles in a run."""
_NS = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "µs": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
}  # fmt: skip
_NAME = "Kernel Name"


def launching(tool: str, report: Path) -> list[str]:
    """Command line of ncu. It profiles only between cudaProfilerStart and cudaProfilerStop."""
    metrics = ",".join((TIME, *SHARES.values(), *SHAPES.values()))
    return [
        *(tool, "--clock-control", "none", "--target-processes", "all", "--profile-from-start", "off"),
        *("--set", "basic", "--metrics", metrics, "--launch-count", str(MOST_LAUNCHES)),
        *("--force-overwrite", "-o", str(report)),
    ]


def reading(tool: str, report: Path) -> list[str]:
    """Command that prints a row of units, then one row of metrics per launch."""
    return [tool, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]


def parse(text: str) -> list[ProfiledKernel]:
    """Parse the table of ``ncu --csv --page raw``."""
    rows = list(rows_after(text, _NAME))
    if not rows:
        raise UnreadableTableError("ncu printed no table of kernels")
    units, launches = rows[0], rows[1:]
    unit = units.get(TIME, "")
    if unit not in _NS:
        raise UnreadableTableError(f"it has {TIME} in '{unit[:20]}', which is no unit of time")
    groups: dict[tuple[str | int | None, ...], list[dict[str, str]]] = defaultdict(list)
    for launch in launches:
        shape = tuple(whole(launch.get(metric)) for metric in SHAPES.values())
        groups[launch[_NAME][:NAME_CHARACTERS], *shape].append(launch)
    return [_kernel(group, _NS[unit]) for group in groups.values()]


def _kernel(launches: list[dict[str, str]], unit_ns: float) -> ProfiledKernel:
    times = [(number(launch.get(TIME)) or 0.0) * unit_ns for launch in launches]

    def mean(metric: str) -> float | None:
        return weighted_mean(zip(times, (number(launch.get(metric)) for launch in launches), strict=True))

    shares = {field: mean(metric) for field, metric in SHARES.items()}
    shape = {field: whole(launches[0].get(metric)) for field, metric in SHAPES.items()}
    kernel = ProfiledKernel(launches[0][_NAME][:NAME_CHARACTERS], "kernel", len(launches), round(sum(times)))
    return msgspec.structs.replace(kernel, **shares, **shape)


TOOL = Tool(
    name="ncu",
    product="Nsight Compute",
    suffix=".ncu-rep",
    launching=launching,
    reading=reading,
    parse=parse,
    refusals={
        "ERR_NVGPUCTRPERM": COUNTERS_REFUSED,
        "No kernels were profiled": "it recorded no kernel: the calls launched none on the device.",
    },
)


class NsightCompute:
    """Runs the kernel in a subject process under ncu."""

    def caution(self, subject: Subject) -> str:
        return caution(TOOL, subject)

    def profile(self, subject: Subject) -> ProfilerResult:
        return profile_with(TOOL, subject)
