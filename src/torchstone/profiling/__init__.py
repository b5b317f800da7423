"""Profiling: runs a kernel on a case's inputs, or a benchmark, under profilers. Its times are not measurements."""

from torchstone.profiling.base import FakeProfiler, Profiler, Subject, unavailable
from torchstone.profiling.request import ProfileRequest
from torchstone.profiling.session import Profiled, profile, profile_sandboxed
from torchstone.profiling.subject_messages import BenchmarkFile, KernelOnCase

__all__ = [
    "BenchmarkFile",
    "FakeProfiler",
    "KernelOnCase",
    "ProfileRequest",
    "Profiled",
    "Profiler",
    "Subject",
    "profile",
    "profile_sandboxed",
    "unavailable",
]
