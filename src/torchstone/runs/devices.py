"""Which device a request means: ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` against what this machine has."""

from __future__ import annotations

import os
import re

from torchstone.errors import DeviceUnavailableError, UsageError
from torchstone.runs.machine import nvidia, torch_cuda, visible_gpus


def resolve_device(asked: str) -> str:
    """The device to judge on; raises if the one asked for is not here."""
    found = re.fullmatch(r"auto|cpu|cuda(?::(\d{1,4}))?", asked)
    if found is None:
        raise UsageError(f"device '{asked}' is not understood. Use auto, cpu, cuda or cuda:N.")
    if asked == "cpu":
        return asked
    obstacle, count = _cuda()
    if asked == "auto":
        return "cpu" if obstacle else "cuda"
    if obstacle:
        raise DeviceUnavailableError(f"device '{asked}' is not available: {obstacle}. Use --device cpu.")
    if found.group(1) is not None and int(found.group(1)) >= count:
        last = f"cuda:{count - 1}"
        raise DeviceUnavailableError(
            f"device '{asked}' is not available: the last one here is {last}. Use --device {last}."
        )
    return asked


def device_type(device: str) -> str:
    """``cuda:1`` -> ``cuda``."""
    return device.partition(":")[0]


def _cuda() -> tuple[str, int]:
    """What stands in the way of CUDA (empty: nothing), and how many devices there are."""
    state = nvidia()
    if not state.gpus:
        return state.problem, 0
    count = visible_gpus(len(state.gpus), os.environ)
    if count == 0:
        return f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} hides every GPU", 0
    if torch_cuda() is None:
        return "the installed torch is no CUDA build (install one from pytorch.org)", 0
    return "", count
