"""Describes this machine: processor, memory, GPUs, and what the installed torch was built for. Never imports torch.

Separate from the manifest, because choosing a device needs the same data before there is a run.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.schema import Gpu, Hardware


class Nvidia(NamedTuple):
    """GPUs and version of the NVIDIA driver."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    problem: str
    """Why there are no GPUs; empty if there are some."""


def hardware() -> Hardware:
    """Processor, memory and GPUs."""
    return Hardware(
        cpu=cpu_model(),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        gpus=nvidia().gpus,
    )


@cache
def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor."""
    text = cpuinfo.read_text(errors="replace") if cpuinfo.exists() else ""
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


@cache
def nvidia() -> Nvidia:
    """The GPUs that NVML sees. None, without an error, if the driver, its library or the Python package is missing."""
    try:
        import pynvml
    except ImportError:
        return Nvidia((), None, "the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Nvidia((), None, f"NVML: {error}")
    try:
        gpus = tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        return Nvidia(gpus, _text(pynvml.nvmlSystemGetDriverVersion()), "" if gpus else "the driver sees no GPU")
    except pynvml.NVMLError as error:
        return Nvidia((), None, f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def query(function: str, *arguments: Any) -> Any:
        try:
            return getattr(pynvml, function)(handle, *arguments)
        except pynvml.NVMLError:
            return None

    capability = query("nvmlDeviceGetCudaComputeCapability")
    memory = query("nvmlDeviceGetMemoryInfo")
    return Gpu(
        index=index,
        name=_text(query("nvmlDeviceGetName") or "unknown"),
        uuid=_text(query("nvmlDeviceGetUUID") or ""),
        memory_bytes=int(memory.total) if memory else 0,
        capability=".".join(str(part) for part in capability) if capability else None,
        max_sm_clock_mhz=query("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
        max_memory_clock_mhz=query("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def torch_cuda() -> str | None:
    """The CUDA version of the installed torch, read from its ``version.py``. None: a CPU build, or no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).with_name("version.py")
    text = version.read_text(errors="replace") if version.exists() else ""
    found = re.search(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None
