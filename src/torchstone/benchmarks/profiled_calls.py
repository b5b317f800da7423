"""Makes the calls of a benchmark that a profiler watches, each in its own NVTX range. Imports torch.

torch's profiler in the harness and ncu and nsys in another process see the same calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch


@contextlib.contextmanager
def marked(name: str, is_nvtx: bool) -> Iterator[None]:
    """Mark the block as a range in the timelines of torch's profiler and, as an NVTX range, of other tools."""
    title = f"torchstone: {name}"
    with torch.profiler.record_function(title), torch.cuda.nvtx.range(title) if is_nvtx else contextlib.nullcontext():
        yield


def make_calls(
    benchmark: Any, warmup_calls: int, calls: int, watching: AbstractContextManager[Any], is_cuda: bool, is_nvtx: bool
) -> None:
    """Make untimed warm-up calls, then the calls inside the context `watching`. `setup` must have run."""
    with marked("warm-up", is_nvtx):
        for _ in range(warmup_calls):
            benchmark.benchmark_fn()
        _synchronize(is_cuda)
    with watching:
        for number in range(calls):
            with marked(f"call {number}", is_nvtx):
                benchmark.benchmark_fn()
        _synchronize(is_cuda)


def trace_calls(
    benchmark: Any, path: Path, warmup_calls: int, calls: int, is_cuda: bool, is_nvtx: bool = False
) -> None:
    """Make the calls under torch's profiler, and write their timeline as a Chrome trace."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if is_cuda else []
    profile = torch.profiler.profile(activities=activities)
    make_calls(benchmark, warmup_calls, calls, profile, is_cuda, is_nvtx)
    profile.export_chrome_trace(str(path))


def _synchronize(is_cuda: bool) -> None:
    if is_cuda:
        torch.cuda.synchronize()
