"""Defines what `torchstone deploy modal` puts on Modal: one function per GPU type, on one image with pinned versions.

A function takes and gives text. The candidate runs in a worker below a judge, both children of the container's
process: a crash is a verdict in the answer, and the container never fails because of it. Modal would start a failed
container of a deployed app again without end.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.executors.node_judge import NodeJudge, Refused, ask_here, described
from torchstone.executors.versions import own_version
from torchstone.schema import decode, encode

APP = "torchstone"
GPUS = {"T4": "T4", "L4": "L4", "A100": "A100-80GB", "H100": "H100!", "H200": "H200", "B200": "B200"}
"""Name of a type -> what Modal is asked for. It may give an H200 for an H100 without the exclamation mark, and a plain
A100 has 40 or 80 GB."""
BASE_IMAGE = "nvidia/cuda:13.0.0-devel-ubuntu24.04"
"""Has nvcc, for kernels in CUDA C++, of the CUDA release that torch's package on PyPI is built for."""
_PINNED = ("torch", "numpy", "msgspec", "click", "rich", "nvidia-ml-py")
"""Packages that are installed there in the versions of the machine that deploys."""
_PINNED_IF_HERE = ("triton",)
_CALL_SECONDS = 3600
"""Longest call: all jobs of one message, each with its own deadlines."""
_CONTAINER_CORES = 4.0
_CONTAINER_MEMORY_MIB = 32 << 10


class Versions(msgspec.Struct, frozen=True):
    """What caller and container must have alike."""

    torchstone: str
    torch: str
    """Without the part that names its build."""


def versions() -> Versions:
    """Those of this machine."""
    return Versions(own_version(), _release("torch"))


def function_name(gpu: str) -> str:
    """The function of a type of GPU: ``judge_h100``."""
    return f"judge_{gpu.lower()}"


def known_gpu(name: str) -> str:
    """The type in its one spelling; raises on any other."""
    found = next((gpu for gpu in GPUS if gpu.lower() == name.lower()), None)
    if found is None:
        raise unknown_name("GPU type", name, GPUS)
    return found


def pins() -> list[str]:
    """Requirements of the image, each with the exact version that is installed here."""
    found = [f"{name}=={_release(name)}" for name in _PINNED]
    for name in _PINNED_IF_HERE:
        try:
            found.append(f"{name}=={_release(name)}")
        except UsageError:
            continue  # torch brings the one that fits it
    return found


def _release(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError as error:
        raise UsageError(f"{package} is not installed: its version for the image is not known. Install it.") from error


def in_container(task: str, *texts: str) -> str:
    """The body of every function: ``describe``, ``judge`` (versions, options, jobs) or ``ask`` (module, input)."""
    if task == "describe":
        return described("cuda")
    if task == "ask":
        return ask_here(*texts)
    expected, options, jobs = texts
    problem = _mismatch(decode(expected, Versions), versions())
    if problem:
        return encode(Refused("UsageError", problem)).decode()
    judge = NodeJudge(options)
    try:
        return judge.judge(jobs)
    finally:
        judge.close()


def _mismatch(caller: Versions, here: Versions) -> str:
    if caller == here:
        return ""
    return (
        f"the deployed app has Torchstone {here.torchstone} and torch {here.torch}, this machine has "
        f"{caller.torchstone} and {caller.torch}. Run 'torchstone deploy modal' again."
    )


def make_image(modal: Any) -> Any:
    """The image of every function."""
    # A function is sent serialized: the container must have the same Python.
    python = ".".join(platform.python_version_tuple()[:2])
    image = modal.Image.from_registry(BASE_IMAGE, add_python=python)
    return image.apt_install("g++").pip_install(*pins()).add_local_python_source("torchstone")


def make_app(modal: Any, gpus: Sequence[str] = tuple(GPUS), max_containers: int = 8) -> Any:
    """The app, with a function for each of these types. Nothing is sent anywhere before it is deployed."""
    app = modal.App(APP)
    declare_functions(modal, app, gpus, max_containers)
    return app


def declare_functions(
    modal: Any, app: Any, gpus: Sequence[str] = tuple(GPUS), max_containers: int = 8
) -> dict[str, Any]:
    """Give an app a function for each of these types: by its name."""
    image = make_image(modal)
    settings = {function_name(gpu): settings_of(gpu, max_containers) for gpu in map(known_gpu, gpus)}
    return {name: app.function(**each, image=image)(in_container) for name, each in settings.items()}


def settings_of(gpu: str, max_containers: int) -> dict[str, Any]:
    """How the function of this type is declared."""
    return {
        "name": function_name(gpu),
        "gpu": GPUS[gpu],
        "serialized": True,  # several functions have one body
        "cpu": _CONTAINER_CORES,
        "memory": _CONTAINER_MEMORY_MIB,
        "timeout": _CALL_SECONDS,
        "retries": 0,  # a job that is lost may be the cause: the session counts
        "max_containers": max_containers,
        "single_use_containers": True,  # a candidate leaves nothing behind for the next
        "block_network": True,
        "restrict_modal_access": True,
        "_experimental_restrict_output": True,  # text, never a pickle
    }
