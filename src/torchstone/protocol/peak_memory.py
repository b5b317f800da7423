"""Measures the peak memory of a call beyond its arguments by torch's allocator. Used in the judge and in workers.

Memory from elsewhere (malloc, cudaMalloc, shared memory) is not counted. On the CPU, resident memory would include it.
But malloc keeps freed memory in a worker, so that the second call of the same kernel would seem to need none.
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
        """Peak memory after the block. None: unknown for this device or version of torch."""

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
    """Peak of torch's device memory: requested bytes, not the blocks that requests are rounded up to."""

    def begin(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self._before = self._stat("current")

    def end(self) -> int | None:
        peak = self._stat("peak")
        return None if peak is None or self._before is None else max(0, peak - self._before)

    @staticmethod
    def _stat(kind: str) -> int | None:
        """A figure of torch's allocator. None: another allocator replaced torch's."""
        found: int | None = torch.cuda.memory_stats().get(f"requested_bytes.all.{kind}")
        return found


class _HostAllocator:
    """Peak of torch's host memory, which torch reports to a profiler only.

    Uses the legacy profiler without its Python part: it starts in microseconds. The new one imports modules for a
    second and writes to the log. The legacy profiler sees only the thread that started it.
    """

    @staticmethod
    def is_watchable() -> bool:
        """Whether this version of torch has the legacy profiler."""
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
