"""Collects the manifest, the circumstances of a run. Reads files and calls tools; never imports torch."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torchstone.runs.machine import hardware, nvidia, torch_cuda
from torchstone.schema import Git, Manifest, Software

PACKAGES = (
    "torch", "triton", "numpy", "msgspec", "nvidia-ml-py", "flag_gems", "liger-kernel", "cuda-python",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cublas-cu12", "ray", "modal",
)  # fmt: skip
"""Those whose version can change a result."""

VARIABLES = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "MALLOC_CONF", "NVIDIA_TF32_OVERRIDE"}
)
PREFIXES = (
    "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "TRITON_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_",
)  # fmt: skip
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")

_GIT_SECONDS = 5.0


def collect(configuration: Mapping[str, Any], seeds: Mapping[str, str] | None = None) -> Manifest:
    """The circumstances of a run with this configuration. Without `seeds`, inputs are drawn from OS randomness."""
    return Manifest(
        hardware=hardware(),
        software=software(),
        git=git(),
        environment=telling_variables(os.environ),
        seeds={"inputs": "os-randomness"} if seeds is None else dict(seeds),
        configuration=dict(configuration),
    )


def software() -> Software:
    """Versions of what takes part."""
    return Software(
        torchstone=own_version(),
        python=platform.python_version(),
        platform=f"{sys.platform}-{platform.machine()}-{platform.release()}",
        packages={name: found for name in PACKAGES if (found := _version(name)) is not None},
        cuda=torch_cuda(),
        driver=nvidia().driver,
    )


def own_version() -> str:
    """The installed version, or a word that says it is run from a source tree."""
    return _version("torchstone") or "source"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git() -> Git | None:
    """The state of the repository around the current folder. None: no repository, no git, or no answer in time."""
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _parse_git(answer.stdout) if answer.returncode == 0 else None


def _parse_git(status: str) -> Git:
    lines = status.splitlines()
    heads = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# "))
    return Git(
        commit=heads.get("branch.oid", ""),
        branch=heads.get("branch.head", ""),
        dirty=any(not line.startswith("# ") for line in lines),
    )


def telling_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that can change a result, without those whose names suggest a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in VARIABLES or name.startswith(PREFIXES)) and not any(word in name.upper() for word in SECRETS)
    }
