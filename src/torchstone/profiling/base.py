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
"""Rows that a result keeps; the tools' own files hold the rest."""
NAME_CHARACTERS = 300
LOG_CHARACTERS = 8 << 10


class Subject(msgspec.Struct, frozen=True):
    """What is to be profiled, how, and the folder for the results."""

    what: KernelOnCase | BenchmarkFile
    device: Device
    folder: Path
    """The profile's own. A profiler puts its files there, under names that begin with its own."""
    calls: int = 5
    warmup_calls: int = 3
    threads: int = 1
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    seconds: float = 180.0
    """For everything that one profiler does."""

    @property
    def kernel(self) -> KernelOnCase:
        """What is profiled, where only kernels can be."""
        assert isinstance(self.what, KernelOnCase), "benchmarks are given to ncu and nsys alone"
        return self.what


class Profiler(Protocol):
    """Something that watches a kernel run. Made without arguments, by name, from the registry.

    It may also have a method `caution(subject)`: what to tell the user before the kernel runs, empty for nothing. And
    a class attribute `in_sandbox`, if it runs the kernel in a worker's sandbox: without it, it is not used on kernels
    that a model wrote, unless the user allows it.
    """

    def profile(self, subject: Subject) -> ProfilerResult:
        """What was seen. A tool that is not here and a kernel that fails are results, not exceptions."""
        ...


class FakeProfiler:
    """Answers with what it was given. For tests of what lies above profilers."""

    def __init__(self, result: ProfilerResult) -> None:
        self._result = result
        self.subjects: list[Subject] = []

    def profile(self, subject: Subject) -> ProfilerResult:
        self.subjects.append(subject)
        return self._result


def unavailable(profiler: str, notice: str, version: str = "") -> ProfilerResult:
    """A profiler that is here and cannot be used."""
    return ProfilerResult(profiler, "unavailable", notice, version)


def with_kernels(result: ProfilerResult, kernels: list[ProfiledKernel]) -> ProfilerResult:
    """The result with the kernels that took longest."""
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
