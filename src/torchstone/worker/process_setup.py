"""Sets up a worker's process: redirects its output, moves caches to its scratch folder, opens its device."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

import torch

from torchstone.isolation import sandbox
from torchstone.protocol.worker_environment import FEW_QUEUES
from torchstone.worker import compiler_warm_up


def redirect_output(log: int) -> None:
    """Read stdin from /dev/null, and write stdout and stderr to the log."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    faulthandler.enable(2)  # a segfault leaves its Python stack in the log tail


def move_caches(scratch: Path, device_type: str) -> None:
    """Make compilers and libraries keep their files in the scratch folder, and put the zygote's files there."""
    os.chdir(scratch)
    temporary = str(scratch / "tmp")
    os.environ.update(
        HOME=str(scratch),
        USER="candidate",  # the worker's uid has no name in the password file, and libraries look it up
        TMPDIR=temporary,
        TRITON_CACHE_DIR=str(scratch / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"),
        TORCH_EXTENSIONS_DIR=str(scratch / "extensions"),
        CUDA_CACHE_PATH=str(scratch / "cuda"),
        PYTORCH_KERNEL_CACHE_PATH=str(scratch / "kernels"),
        XDG_CACHE_HOME=str(scratch / "cache"),
    )
    import tempfile

    tempfile.tempdir = temporary
    compiler_warm_up.write_triton_cache(scratch / "triton")
    if device_type != "cpu":
        compiler_warm_up.write_torch_cache(scratch / "kernels")
    sys.dont_write_bytecode = True


def choose_device(policy: sandbox.Policy) -> torch.device:
    """Choose the device before candidate code runs: a candidate may set variables that the driver reads."""
    if policy.device_type == "cpu":
        return torch.device("cpu")
    if policy.few_queues:
        os.environ.update(FEW_QUEUES)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.cuda.device_count()  # until torch has counted devices, each query reads CUDA's variables
    return torch.device(policy.device_type, 0)


def open_device(device: torch.device) -> None:
    """Create the CUDA context, if the device is a GPU."""
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
