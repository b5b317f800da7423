"""Prepares a process for a benchmark and watches its memory: frees caches, pins threads, restores determinism flags."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torchstone.benchmarks.seeding import CUBLAS_VARIABLE
from torchstone.harness.results import MemoryStats

_MIB = 1 << 20


class Determinism:
    """Remembers the caller's settings of torch while a benchmark runs deterministically in the caller's process.

    Several benchmarks may live at once: the first one reads the settings, the last one puts them back.
    """

    _lock: ClassVar = threading.Lock()
    _holders: ClassVar[set[Determinism]] = set()
    _before: ClassVar[_Settings | None] = None

    def __init__(self) -> None:
        with self._lock:
            if not self._holders:
                Determinism._before = _Settings.now()
            self._holders.add(self)

    def put_back(self) -> None:
        """Restore the settings, unless another benchmark still needs determinism. A second call does nothing."""
        with self._lock:
            if self not in self._holders:
                return
            self._holders.remove(self)
            if not self._holders and self._before is not None:
                self._before.put_back()


class _Settings(NamedTuple):
    """The settings of torch that `be_deterministic` changes."""

    algorithms: bool
    warn_only: bool
    cudnn: tuple[bool, bool]
    workspace: str | None
    """None: the variable is not set."""

    @classmethod
    def now(cls) -> _Settings:
        import torch

        algorithms = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
        return cls(algorithms, warn_only, cudnn, os.environ.get(CUBLAS_VARIABLE))

    def put_back(self) -> None:
        import torch

        torch.use_deterministic_algorithms(self.algorithms, warn_only=self.warn_only)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = self.cudnn
        if self.workspace is None:
            os.environ.pop(CUBLAS_VARIABLE, None)
        else:
            os.environ[CUBLAS_VARIABLE] = self.workspace


def reset_gpu_state() -> None:
    """Free caches and compiled functions, and reset the device's counters: a cold start without a new process."""
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
    """Pin every thread of this process, and those that it will start, to these cores."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            os.sched_setaffinity(int(thread), cores)


@contextlib.contextmanager
def caller_on(cores: Iterable[int]) -> Iterator[None]:
    """Pin the calling thread, and threads that it starts, to these cores inside the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class MemoryWatch:
    """Measures memory from now on: of torch's allocator on CUDA, or the resident memory of this process on a CPU."""

    def __init__(self, is_cuda: bool) -> None:
        self._is_cuda = is_cuda
        if is_cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):  # if not allowed, the peak counts from the start of the process
                Path("/proc/self/clear_refs").write_text("5")

    def stats(self, kept_bytes: int = 0) -> MemoryStats:
        """Peak since construction, and current memory; without `kept_bytes` of device memory due to the harness."""
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
