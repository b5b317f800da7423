"""Defines what `torchstone deploy modal` puts on Modal: one function per GPU type, on one image with pinned versions.

A function takes text and returns text. The candidate runs in a worker below a judge, both children of the container's
process. So a crash is a verdict in the answer and does not end the container. Modal would restart a failed container of
a deployed app without end.
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
"""GPU type -> name in a request to Modal. Without the exclamation mark Modal may provide an H200 for an H100, and a
plain A100 has 40 or 80 GB."""
BASE_IMAGE = "nvidia/cuda:13.0.0-devel-ubuntu24.04"
"""Image with nvcc, for kernels in CUDA C++, of the CUDA release that torch's package on PyPI is built for."""
_PINNED = ("torch", "numpy", "msgspec", "click", "rich", "nvidia-ml-py")
"""Packages that the image has in the same versions as the machine that deploys."""
_PINNED_IF_HERE = ("triton",)
"""Packages that are pinned like those only if they are installed on that machine."""
_CALL_SECONDS = 3600
"""Longest call. It has all jobs of one message, each with its own deadlines."""
_CONTAINER_CORES = 4.0
_CONTAINER_MEMORY_MIB = 32 << 10


class Versions(msgspec.Struct, frozen=True):
    """Versions that must be the same on caller and container."""

    torchstone: str
    torch: str
    """The release, without the part that names the build."""


def versions() -> Versions:
    """The versions on this machine."""
    return Versions(own_version(), _release("torch"))


def function_name(gpu: str) -> str:
    """Name of the function for a GPU type: ``judge_h100``."""
    return f"judge_{gpu.lower()}"


def known_gpu(name: str) -> str:
    """The GPU type of this name, ignoring upper and lower case. Raises UsageError if there is none."""
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
            continue  # torch installs the version that it needs
    return found


def _release(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError as error:
        raise UsageError(f"{package} is not installed: its version for the image is not known. Install it.") from error


def in_container(task: str, *texts: str) -> str:
    """The body of every function. Tasks: ``describe``, ``judge`` (versions, options, jobs), ``ask`` (module, input)."""
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
    """Define the container image that every function uses."""
    # Functions are sent serialized, so the container must have the same Python.
    python = ".".join(platform.python_version_tuple()[:2])
    image = modal.Image.from_registry(BASE_IMAGE, add_python=python)
    return image.apt_install("g++").pip_install(*pins()).add_local_python_source("torchstone")


def make_app(modal: Any, gpus: Sequence[str] = tuple(GPUS), max_containers: int = 8) -> Any:
    """Define the app, with a function for each of these GPU types. Nothing is sent before it is deployed."""
    app = modal.App(APP)
    declare_functions(modal, app, gpus, max_containers)
    return app


def declare_functions(
    modal: Any, app: Any, gpus: Sequence[str] = tuple(GPUS), max_containers: int = 8
) -> dict[str, Any]:
    """Add a function for each of these GPU types to an app. Returns them by name."""
    image = make_image(modal)
    settings = {function_name(gpu): settings_of(gpu, max_containers) for gpu in map(known_gpu, gpus)}
    return {name: app.function(**each, image=image)(in_container) for name, each in settings.items()}


def settings_of(gpu: str, max_containers: int) -> dict[str, Any]:
    """Options with which the function of this GPU type is declared."""
    return {
        "name": function_name(gpu),
        "gpu": GPUS[gpu],
        "serialized": True,  # several functions have one body
        "cpu": _CONTAINER_CORES,
        "memory": _CONTAINER_MEMORY_MIB,
        "timeout": _CALL_SECONDS,
        "retries": 0,  # a lost job may be the cause of the failure: the session counts attempts
        "max_containers": max_containers,
        "single_use_containers": True,  # a candidate cannot leave files for the next one
        "block_network": True,
        "restrict_modal_access": True,
        "_experimental_restrict_output": True,  # results are text, never a pickle
    }
