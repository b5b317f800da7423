"""The state that a benchmark starts from: torch's settings, caches, cores, memory counters."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torchstone.harness.results import MemoryStats

_MIB = 1 << 20


class Determinism:
    """Torch's settings as they are now, to be put back where the process is not ours."""

    def __init__(self) -> None:
        import torch

        self._algorithms = torch.are_deterministic_algorithms_enabled()
        self._cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark

    def put_back(self) -> None:
        import torch

        torch.use_deterministic_algorithms(self._algorithms)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = self._cudnn


def reset_gpu_state() -> None:
    """Free what caches hold and reset the device's counters: a cold start without a new process."""
    import torch

    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
    gc.collect()
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def stay_on(cores: Iterable[int]) -> None:
    """Every thread that this process has, and those that it will start."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            os.sched_setaffinity(int(thread), cores)


@contextlib.contextmanager
def caller_on(cores: Iterable[int]) -> Iterator[None]:
    """The calling thread on these cores meanwhile, and what it starts; other threads stay where they are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class MemoryWatch:
    """From now until `stats`: device memory of torch's allocator, or on a CPU the resident memory of this process."""

    def __init__(self, is_cuda: bool) -> None:
        self._is_cuda = is_cuda
        if is_cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):  # not everywhere allowed: then the peak is since the process began
                Path("/proc/self/clear_refs").write_text("5")

    def stats(self, kept_bytes: int = 0) -> MemoryStats:
        """Without so many bytes of device memory that are held for the harness."""
        if self._is_cuda:
            import torch

            return MemoryStats(
                (torch.cuda.max_memory_allocated() - kept_bytes) / _MIB,
                (torch.cuda.memory_allocated() - kept_bytes) / _MIB,
                torch.cuda.memory_reserved() / _MIB,
            )
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        peak, now = (int(fields[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))
        return MemoryStats(peak, now)
