"""Computes key figures of one benchmark, such as kernel time and occupancy, from what the profilers saw."""

from __future__ import annotations

from collections.abc import Mapping

from torchstone.harness.results import ProfilerMetrics
from torchstone.profiling.base import weighted_mean
from torchstone.profiling.nsight_compute import MOST_LAUNCHES
from torchstone.schema import ProfiledKernel, ProfilerResult

_TIME_SOURCES = ("torch", "nsys", "ncu")
"""Order of profilers from which kernel time is taken. ncu comes last, since it empties caches before each launch."""
_OCCUPANCY_SOURCES = ("ncu", "torch")
"""Order of profilers from which occupancy is taken. ncu measures it; torch estimates it from the launch."""


def metrics_of(results: Mapping[str, ProfilerResult], calls: Mapping[str, int]) -> ProfilerMetrics:
    """Metrics of one call. `calls`: profiler -> number of calls that it profiled."""
    kernels = {name: [k for k in result.kernels if k.kind == "kernel"] for name, result in results.items()}
    return ProfilerMetrics(
        profilers={name: _status(result) for name, result in results.items()},
        kernel_time_ms=next(
            (_time_ms(kernels[name], calls[name]) for name in _TIME_SOURCES if _saw_all(name, kernels.get(name, []))),
            None,
        ),
        sm_throughput_pct=_share(kernels.get("ncu", []), "sm_percent"),
        memory_throughput_pct=_share(kernels.get("ncu", []), "memory_percent"),
        occupancy_pct=next(
            (
                share
                for name in _OCCUPANCY_SOURCES
                if (share := _share(kernels.get(name, []), "occupancy_percent")) is not None
            ),
            None,
        ),
        l2_hit_pct=_share(kernels.get("ncu", []), "l2_hit_percent"),
    )


def _status(result: ProfilerResult) -> str:
    return result.status if result.status == "profiled" else f"{result.status}: {result.notice}"


def _saw_all(name: str, kernels: list[ProfiledKernel]) -> bool:
    launches = sum(kernel.launches for kernel in kernels)
    return launches > 0 and not (name == "ncu" and launches >= MOST_LAUNCHES)


def _time_ms(kernels: list[ProfiledKernel], calls: int) -> float:
    return sum(kernel.profiled_ns for kernel in kernels) / calls / 1e6


def _share(kernels: list[ProfiledKernel], field: str) -> float | None:
    return weighted_mean((kernel.profiled_ns, getattr(kernel, field)) for kernel in kernels)
