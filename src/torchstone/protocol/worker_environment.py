"""The environment variables that workers may see, and a function that starts a process with only these."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Literal

from torchstone.atomic_files import KERNEL_CACHE_VARIABLE

Preload = Literal["torch", "triton", "compiler"]
"""What a zygote imports. Each includes those before it. For a GPU, Triton takes a second or two, the compiler five."""

_ALLOWED_VARIABLES = (
    "PATH", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST", "TRITON_INTERPRET", "CC", "CXX",
    KERNEL_CACHE_VARIABLE,
)  # fmt: skip
"""Environment variables that a candidate may see. All others, such as keys and tokens, are removed."""

FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2"}
"""With fewer work queues a device opens faster: in 60 ms instead of 120 ms on an H200. It closes in half the time. The
driver creates queues for one process at a time."""


def clean_environment(source: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables of an environment, and settings that stop libraries from starting threads before a fork."""
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
        # Makes torch look for a device with NVML. CUDA would start a thread, which forks do not have.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def start_apart(
    module: str, connection: socket.socket, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE DESCRIPTOR ARGUMENTS…`` in a session of its own, which Ctrl-C does not reach.

    The process inherits no descriptor but this end of a socket. Without ``environment`` it gets the allowed variables
    of this process.
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
