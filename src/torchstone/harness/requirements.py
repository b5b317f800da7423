"""Checks whether this machine has what a benchmark declares that it needs."""

from __future__ import annotations

import os

import torch

from torchstone.benchmarks import BenchmarkDefaults

_GB = 1_000_000_000


def unmet_requirement(settings: BenchmarkDefaults, is_cuda: bool) -> str:
    """The first requirement that the machine does not meet, as the reason of a skip; empty if it meets all."""
    devices = torch.cuda.device_count() if is_cuda else 0
    if settings.min_devices > 1 and devices < settings.min_devices:
        return f"needs {settings.min_devices} CUDA devices; {devices} can be used here"
    if settings.min_memory_gb > 0:
        there = _memory_bytes(is_cuda) / _GB
        if there < settings.min_memory_gb:
            return f"needs {settings.min_memory_gb:g} GB of memory; there are {there:.1f} here"
    if settings.min_capability:
        if not is_cuda:
            return f"needs a CUDA device of compute capability {settings.min_capability}; this runs on the CPU"
        there_capability = torch.cuda.get_device_capability()
        if there_capability < _capability(settings.min_capability):
            shown = ".".join(str(part) for part in there_capability)
            return f"needs compute capability {settings.min_capability}; this device has {shown}"
    return ""


def _memory_bytes(is_cuda: bool) -> int:
    if is_cuda:
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
