"""The interface of a profiler, the subject that it is given (a kernel or a benchmark), and a fake for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.executors.devices import Device
from torchstone.profiling.subject_messages import BenchmarkFile, KernelOnCase
from torchstone.schema import IsolationLevel, Limits, ProfiledKernel, ProfilerResult

MOST_KERNELS = 200
"""Most kernels that a result keeps. The tools' own files hold the rest."""
NAME_CHARACTERS = 300
LOG_CHARACTERS = 8 << 10


class Subject(msgspec.Struct, frozen=True):
    """A kernel or benchmark to profile, the settings, and the folder for the results."""

    what: KernelOnCase | BenchmarkFile
    device: Device
    folder: Path
    """Folder of the profile. A profiler writes its files there, under names that begin with its own name."""
    calls: int = 5
    warmup_calls: int = 3
    threads: int = 1
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    seconds: float = 180.0
    """Time limit for one profiler."""

    @property
    def kernel(self) -> KernelOnCase:
        """The kernel and its case. Not for benchmarks."""
        assert isinstance(self.what, KernelOnCase), "benchmarks are given to ncu and nsys alone"
        return self.what


class Profiler(Protocol):
    """A profiler of kernels. The registry makes it by name, without arguments.

    It may have a method `caution(subject)`, which returns a warning to show before the kernel runs, or an empty text.
    A class attribute `in_sandbox` says that it runs the kernel in a worker's sandbox. Without it, the profiler is not
    used on kernels that a model wrote, unless the user allows it.
    """

    def profile(self, subject: Subject) -> ProfilerResult:
        """Profile the subject. A missing tool or a failing kernel is a result, not an exception."""
        ...


class FakeProfiler:
    """Returns a prepared result, for tests of the code that uses profilers."""

    def __init__(self, result: ProfilerResult) -> None:
        self._result = result
        self.subjects: list[Subject] = []

    def profile(self, subject: Subject) -> ProfilerResult:
        self.subjects.append(subject)
        return self._result


def unavailable(profiler: str, notice: str, version: str = "") -> ProfilerResult:
    """The result of a profiler that is installed but cannot be used."""
    return ProfilerResult(profiler, "unavailable", notice, version)


def with_kernels(result: ProfilerResult, kernels: list[ProfiledKernel]) -> ProfilerResult:
    """The result with the kernels that took longest, at most `MOST_KERNELS`."""
    ordered = sorted(kernels, key=lambda kernel: (-kernel.profiled_ns, kernel.name))
    left_out = max(0, len(ordered) - MOST_KERNELS)
    return msgspec.structs.replace(result, kernels=tuple(ordered[:MOST_KERNELS]), kernels_left_out=left_out)


def weighted_mean(pairs: Iterable[tuple[float, float | None]]) -> float | None:
    """Mean of the second of each pair, weighted by the first; None where none is known."""
    known = [(weight, value) for weight, value in pairs if value is not None]
    if not known:
        return None
    total = sum(weight for weight, _ in known)
    if total <= 0:
        return sum(value for _, value in known) / len(known)
    return sum(weight * value for weight, value in known) / total
