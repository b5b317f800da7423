"""WHERE DOES THE TIME GO? One kernel on one case under profilers. Never a measurement, never part of a record."""

from torchstone.profiling.base import FakeProfiler, Profiler, Subject, unavailable
from torchstone.profiling.request import ProfileRequest
from torchstone.profiling.session import Profiled, profile

__all__ = ["FakeProfiler", "ProfileRequest", "Profiled", "Profiler", "Subject", "profile", "unavailable"]
