"""Measures the peak memory of a call beyond its arguments by torch's allocator. Used in the judge and in workers.

Memory from elsewhere (malloc, cudaMalloc, shared memory) is not seen. Resident memory would show it on the CPU. But
malloc keeps freed memory in a worker, so that the second call of the same kernel would seem to need nothing.
"""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import Any

import torch
from torch._C import _autograd, _profiler


class PeakMemory:
    """``with PeakMemory("cpu") as peak: call()``, then ``peak.size_bytes``."""

    def __init__(self, device_type: str) -> None:
        self._watched: _DeviceAllocator | _HostAllocator | None = None
        if device_type == "cuda":
            self._watched = _DeviceAllocator()
        elif device_type == "cpu" and _HostAllocator.is_watchable():
            self._watched = _HostAllocator()
        self.size_bytes: int | None = None
        """None: not known for this device, or with this torch."""

    def __enter__(self) -> PeakMemory:
        if self._watched is not None:
            self._watched.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watched is not None:
            self.size_bytes = self._watched.end()


class _DeviceAllocator:
    """torch keeps count of its device memory; here of what was asked for, not of the blocks that it was rounded to."""

    def begin(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self._before = self._stat("current")

    def end(self) -> int | None:
        peak = self._stat("peak")
        return None if peak is None or self._before is None else max(0, peak - self._before)

    @staticmethod
    def _stat(kind: str) -> int | None:
        """None: another allocator replaced torch's."""
        found: int | None = torch.cuda.memory_stats().get(f"requested_bytes.all.{kind}")
        return found


class _HostAllocator:
    """torch reports its use of host memory to a profiler only.

    The old one, without its Python side: it starts in microseconds, where the new one imports for a second and
    writes to the log. It sees the thread that it was started in.
    """

    @staticmethod
    def is_watchable() -> bool:
        return hasattr(_autograd, "_enable_profiler_legacy") and hasattr(_profiler, "ProfilerConfig")

    def begin(self) -> None:
        shapes, memory, stack, flops, modules = False, True, False, False, False
        config = _profiler.ProfilerConfig(
            _profiler.ProfilerState.CPU, shapes, memory, stack, flops, modules, _profiler._ExperimentalConfig()
        )
        _autograd._enable_profiler_legacy(config)

    def end(self) -> int:
        current = most = 0
        threads: list[list[Any]] = _autograd._disable_profiler_legacy()
        for event in itertools.chain.from_iterable(threads):
            if event.kind() == "memory_alloc":
                current += event.cpu_memory_usage()
                most = max(most, current)
        return most
