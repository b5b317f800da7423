"""The environment variables that workers may see, and a function that starts a process with only these."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Literal

from torchstone.atomic_files import KERNELS_OF_TORCH

Preload = Literal["torch", "triton", "compiler"]
"""What a zygote imports, each with all before it: for a GPU Triton takes a second or two, torch's compiler five."""

_ALLOWED_VARIABLES = (
    "PATH", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST", "TRITON_INTERPRET", "CC", "CXX",
    KERNELS_OF_TORCH,
)  # fmt: skip
"""What a candidate may see of the environment. Everything else, keys and tokens included, stays outside."""

FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2"}
"""Fewer work queues open a device faster: 60 ms instead of 120 on an H200, and half as long to close it. The driver
makes the queues of one process after another."""


def clean_environment(source: Mapping[str, str]) -> dict[str, str]:
    """The allow-listed part of an environment, with libraries kept from starting threads before a fork."""
    kept = {name: source[name] for name in _ALLOWED_VARIABLES if name in source}
    if "PYTHONPATH" in kept:  # the zygote starts in another folder
        kept["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(path) for path in kept["PYTHONPATH"].split(os.pathsep) if path
        )
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        "PATH": os.defpath,
        **kept,
        **threads,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Asked whether there is a device, torch asks NVML: CUDA would start a thread, which no fork has.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def start_apart(
    module: str, connection: socket.socket, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """``python -m MODULE DESCRIPTOR ARGUMENTS…`` in a session of its own: Ctrl-C does not reach it, and it has nothing
    of ours but this end of a socket. Without an environment it gets the allow-listed part of ours.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(connection.fileno()), *arguments],
        env=clean_environment(os.environ) if environment is None else dict(environment),
        pass_fds=(connection.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
