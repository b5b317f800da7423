"""Resolves the device of a request (``auto``, ``cpu``, ``cuda``, ``cuda:N``) on this machine."""

from __future__ import annotations

import os
import re

from torchstone.errors import DeviceUnavailableError, UsageError
from torchstone.executors.devices import find_devices, visible_uuids
from torchstone.executors.machine import nvidia, torch_cuda


def resolve_device(asked: str) -> str:
    """The device to judge on; raises if the one asked for is not here."""
    if re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", asked) is None:
        raise UsageError(f"device '{asked}' is not understood. Use auto, cpu, cuda or cuda:N.")
    if asked == "cpu":
        return asked
    obstacle = _cuda_obstacle()
    if asked == "auto":
        return "cpu" if obstacle else "cuda"
    if obstacle:
        raise DeviceUnavailableError(f"device '{asked}' is not available: {obstacle}. Use --device cpu.")
    find_devices(asked)
    return asked


def device_type(device: str) -> str:
    """``cuda:1`` -> ``cuda``."""
    return device.partition(":")[0]


def _cuda_obstacle() -> str:
    """What stands in the way of CUDA; empty: nothing."""
    state = nvidia()
    if not state.gpus:
        return state.problem
    if torch_cuda() is None:
        return "the installed torch is no CUDA build (pytorch.org has them)"
    if not visible_uuids(os.environ):
        return f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r} hides every GPU"
    return ""
