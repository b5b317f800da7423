"""Reads the versions of torch, Triton, driver and other software on this machine. Never imports torch."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from torchstone.executors.machine import nvidia, torch_cuda
from torchstone.schema import Software

PACKAGES = (
    "torch", "triton", "numpy", "msgspec", "nvidia-ml-py", "flag_gems", "liger-kernel", "cuda-python",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cublas-cu12", "ray", "modal",
)  # fmt: skip
"""Packages whose version can change a result."""


def software() -> Software:
    """Versions of Torchstone, Python, the system, packages, CUDA and driver."""
    return Software(
        torchstone=own_version(),
        python=platform.python_version(),
        platform=f"{sys.platform}-{platform.machine()}-{platform.release()}",
        packages={name: found for name in PACKAGES if (found := _version(name)) is not None},
        cuda=torch_cuda(),
        driver=nvidia().driver,
    )


def own_version() -> str:
    """The installed version of Torchstone; ``source`` if it is run from a source tree."""
    return _version("torchstone") or "source"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
