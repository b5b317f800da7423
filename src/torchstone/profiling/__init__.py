"""Profiling: a kernel on a case, or a benchmark, under profilers. Not a measurement."""

from torchstone.profiling.base import FakeProfiler, Profiler, Subject, unavailable
from torchstone.profiling.order import BenchmarkFile, KernelOnCase
from torchstone.profiling.request import ProfileRequest
from torchstone.profiling.session import Profiled, profile

__all__ = [
    "BenchmarkFile",
    "FakeProfiler",
    "KernelOnCase",
    "ProfileRequest",
    "Profiled",
    "Profiler",
    "Subject",
    "profile",
    "unavailable",
]
