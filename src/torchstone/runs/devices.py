"""Resolves the device of a request (``auto``, ``cpu``, ``cuda``, ``cuda:N``) on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from torchstone.errors import DeviceUnavailableError, UsageError
from torchstone.executors import ExecutorOptions, Site
from torchstone.executors.devices import find_devices, visible_uuids
from torchstone.executors.machine import nvidia, torch_cuda


def resolve_device(asked: str) -> str:
    """The device to judge on. Raises DeviceUnavailableError if this machine does not have the requested one."""
    check_device_name(asked)
    if asked == "cpu":
        return asked
    obstacle = _cuda_obstacle()
    if asked == "auto":
        return "cpu" if obstacle else "cuda"
    if obstacle:
        raise DeviceUnavailableError(f"device '{asked}' is not available: {obstacle}. Use --device cpu.")
    find_devices(asked)
    return asked


def find_site(factory: object, options: ExecutorOptions) -> Site:
    """The device and machines of an executor. ``options.device`` is the user's name for it. Raises if it is missing."""
    survey: Callable[[ExecutorOptions], Site] | None = getattr(factory, "survey", None)
    if survey is None:
        return Site(resolve_device(options.device))
    check_device_name(options.device)
    return survey(options)


def check_device_name(asked: str) -> None:
    """Raise UsageError for any name but ``auto``, ``cpu``, ``cuda`` and ``cuda:N``."""
    if re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", asked) is None:
        raise UsageError(f"device '{asked}' is not understood. Use auto, cpu, cuda or cuda:N.")


def device_type(device: str) -> str:
    """``cuda:1`` -> ``cuda``."""
    return device.partition(":")[0]


def has_device(device: str) -> bool:
    """Whether this machine has a device of that type."""
    return device_type(device) == "cpu" or not _cuda_obstacle()


def _cuda_obstacle() -> str:
    """Why CUDA cannot be used on this machine; empty: it can."""
    state = nvidia()
    if not state.gpus:
        return state.problem
    if torch_cuda() is None:
        return "the installed torch is no CUDA build (pytorch.org has them)"
    if not visible_uuids(os.environ):
        return f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r} hides every GPU"
    return ""
