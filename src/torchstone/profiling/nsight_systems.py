"""Profiles with Nsight Systems (nsys): the timeline of calls, copies and kernels. Keeps the `.nsys-rep`."""

from __future__ import annotations

from pathlib import Path

from torchstone.profiling.base import NAME_CHARACTERS, Subject
from torchstone.profiling.nsight import Tool, UnreadableTableError, caution, profile_with
from torchstone.profiling.profiler_csv import rows_after, whole
from torchstone.schema import ProfiledKernel, ProfilerResult

_NAME, _TIME, _LAUNCHES = "Name", "Total Time (ns)", "Instances"


def launching(tool: str, report: Path) -> list[str]:
    """Command line of nsys. It profiles only between cudaProfilerStart and cudaProfilerStop."""
    return [
        *(tool, "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none"),
        *("--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"),
        *("--force-overwrite", "true", "--output", str(report)),
    ]


def reading(tool: str, report: Path) -> list[str]:
    """Command that prints one row per kernel."""
    return [
        *(tool, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--output", "-"),
        *("--force-export", "true", str(report)),
    ]


def parse(text: str) -> list[ProfiledKernel]:
    """Parse the table of ``nsys stats --report cuda_gpu_kern_sum --format csv``."""
    rows = list(rows_after(text, _TIME))
    if not rows or _NAME not in rows[0]:
        raise UnreadableTableError("nsys printed no table of kernels")
    return [
        ProfiledKernel(row[_NAME][:NAME_CHARACTERS], "kernel", whole(row.get(_LAUNCHES)) or 0, whole(row[_TIME]) or 0)
        for row in rows
    ]


TOOL = Tool(
    name="nsys",
    product="Nsight Systems",
    suffix=".nsys-rep",
    launching=launching,
    reading=reading,
    parse=parse,
    refusals={},
)


class NsightSystems:
    """Runs the kernel in a subject process under nsys."""

    def caution(self, subject: Subject) -> str:
        return caution(TOOL, subject)

    def profile(self, subject: Subject) -> ProfilerResult:
        return profile_with(TOOL, subject)
