"""Collects the manifest of a run: hardware, software, git state, configuration. Never imports torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from torchstone.executors.machine import hardware
from torchstone.executors.versions import software
from torchstone.schema import Git, Manifest, Node

VARIABLES = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "MALLOC_CONF", "NVIDIA_TF32_OVERRIDE"}
)
PREFIXES = (
    "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "TRITON_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_",
)  # fmt: skip
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")

_GIT_SECONDS = 5.0


def collect(
    configuration: Mapping[str, Any], seeds: Mapping[str, str] | None = None, nodes: tuple[Node, ...] = ()
) -> Manifest:
    """The manifest of a run with this configuration. Without `seeds`, inputs are drawn from OS randomness.

    ``nodes``: the machines that judge, if they are not this one.
    """
    return Manifest(
        hardware=nodes[0].hardware if nodes else hardware(),
        software=nodes[0].software if nodes else software(),
        git=git(),
        environment=telling_variables(os.environ),
        seeds={"inputs": "os-randomness"} if seeds is None else dict(seeds),
        configuration=dict(configuration),
        nodes=nodes,
    )


def git() -> Git | None:
    """State of the git repository of the current folder. None: no repository, no git, or git takes too long."""
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
    """Environment variables that can change a result, without those whose names suggest a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in VARIABLES or name.startswith(PREFIXES)) and not any(word in name.upper() for word in SECRETS)
    }
