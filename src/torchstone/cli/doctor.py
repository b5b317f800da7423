"""``torchstone doctor``: what this machine offers, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from torchstone.errors import TorchstoneError

if TYPE_CHECKING:
    from torchstone.supervisor.worker_handle import Worker


class Diagnosis(msgspec.Struct, frozen=True):
    """One finding: a device, package, isolation layer or tool, and whether it can be used."""

    topic: str
    name: str
    good: bool
    detail: str
    advice: str = ""
    """What the user should do; empty: nothing."""


_PACKAGES = {
    "torch": "pip install torch",
    "triton": "pip install 'torchstone[triton]' to judge Triton kernels",
    "numpy": "pip install numpy",
    "nvidia-ml-py": "pip install nvidia-ml-py",
}
_BACKENDS = {
    "flag_gems": "for --backend flag_gems: pip install --no-deps flag_gems, pip install sqlalchemy pyyaml packaging",
    "liger_kernel": "for --backend liger: pip install --no-deps liger-kernel",
}
_PROFILERS = {
    "ncu": "install NVIDIA Nsight Compute and put ncu on the PATH",
    "nsys": "install NVIDIA Nsight Systems and put nsys on the PATH",
}
_LAYER_ADVICE = {
    "processes": "run as root, or allow user namespaces (sysctl user.max_user_namespaces); in Docker: --privileged or "
    "--security-opt seccomp=unconfined",
    "uid": "run as root or allow user namespaces",
    "landlock": "Linux 5.13 or newer with landlock in the list of security modules (lsm=landlock,…)",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="Device on which a worker is tested."
)
@click.pass_context
def doctor(context: click.Context, as_json: bool, device: str) -> None:
    """Show devices, versions, isolation, compilers, profilers and extras, and how to get what is missing.

    Exit code 0: kernels can be judged here. 3: they cannot.
    """
    findings = [
        *(*_packages("package", _PACKAGES), *_packages("backend", _BACKENDS), *_devices()),
        *(*_isolation(device), *_compilers(), *_profilers(), *_extras()),
    ]
    if as_json:
        click.echo(msgspec.json.encode(findings).decode())
    else:
        _print(findings)
    usable = all(finding.good for finding in findings if finding.name in ("torch", "worker"))
    context.exit(0 if usable else 3)


def _packages(topic: str, advices: Mapping[str, str]) -> list[Diagnosis]:
    found = []
    for name, advice in advices.items():
        version = _version(name)
        detail = version or "not installed"
        found.append(Diagnosis(topic, name, version is not None, detail, "" if version else advice))
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[Diagnosis]:
    from torchstone.executors.machine import hardware, nvidia, torch_cuda

    machine = hardware()
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    found = [Diagnosis("device", "cpu", True, f"{machine.cpu}, {machine.cpu_cores} cores, {memory}")]
    state = nvidia()
    for gpu in state.gpus:
        detail = f"{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, capability {gpu.capability or 'unknown'}"
        found.append(Diagnosis("device", f"cuda:{gpu.index}", True, detail))
    if not state.gpus:
        found.append(Diagnosis("device", "cuda", False, state.problem, "fine for CPU work; GPUs need NVIDIA's driver"))
    elif torch_cuda() is None:
        advice = "install a CUDA build of torch to judge on the GPU"
        found.append(Diagnosis("device", "cuda", False, "the installed torch is no CUDA build", advice))
    return found


def _isolation(device: str) -> list[Diagnosis]:
    """Start a real worker, and report which layers of its sandbox are active."""
    from torchstone.runs.devices import device_type, resolve_device
    from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

    try:
        kind = device_type(resolve_device(device))
        pool = WorkerPool(WorkerOptions(device_type=kind, spares=0))
        try:
            worker = pool.take()
            worker.kill()
        finally:
            pool.close()
    except TorchstoneError as error:
        return [Diagnosis("isolation", "worker", False, str(error), "read the message; kernels cannot be judged here")]
    layers = [
        Diagnosis("isolation", layer.name, layer.active, layer.detail, "" if layer.active else _advice(layer.name))
        for layer in worker.layers
    ]
    return [Diagnosis("isolation", "worker", True, f"starts on {kind}"), *layers, *_access(worker)]


def _access(worker: Worker) -> list[Diagnosis]:
    """Whether the judge can freeze a worker by ptrace and read its memory. Without that, kernels are judged in a weaker
    way, and records say so.
    """
    advice = "allow ptrace (in a container: --cap-add SYS_PTRACE)"
    traced, read = worker.holding == "traced", worker.results == "read"
    holding = "by ptrace" if traced else "by SIGSTOP, which a kernel can undo: ptrace is refused"
    results = "read in the worker's memory" if read else "copied by the kernel's process: reading its memory is refused"
    return [
        Diagnosis("isolation", "standstill", traced, holding, "" if traced else advice),
        Diagnosis("isolation", "results", read, results, "" if read else advice),
    ]


def _advice(layer: str) -> str:
    return _LAYER_ADVICE.get(layer, _LAYER_ADVICE["processes"])


def _compilers() -> list[Diagnosis]:
    from torchstone.processes.toolchain import find_cxx, find_nvcc

    compilers = (
        ("C++", find_cxx(), "install g++ for C++ kernels and --backend compile on the CPU, or name a compiler in CXX"),
        ("nvcc", find_nvcc(), "install NVIDIA's CUDA toolkit for CUDA kernels, or name its folder in CUDA_HOME"),
    )
    return [
        Diagnosis("compiler", name, path is not None, path or "not found", "" if path else advice)
        for name, path, advice in compilers
    ]


def _profilers() -> list[Diagnosis]:
    from torchstone.profiling.external_tools import find_tool

    found = []
    for name, advice in _PROFILERS.items():
        path = find_tool(name)
        found.append(Diagnosis("profiler", name, path is not None, path or "not found", "" if path else advice))
    return found


def _extras() -> list[Diagnosis]:
    """Optional parts of Torchstone, read from its own metadata."""
    try:
        metadata = importlib.metadata.metadata("torchstone")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [
        Diagnosis("extra", name, True, "offered")
        for name in metadata.get_all("Provides-Extra") or []
        if name not in ("dev", "triton")
    ]


def _print(findings: list[Diagnosis]) -> None:
    from rich.table import Table

    from torchstone.reports.console import make_console

    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "", "found", "do this"):
        table.add_column(column, overflow="fold")
    last = ""
    for finding in findings:
        mark: Any = "[green]ok[/]" if finding.good else "[yellow]--[/]"
        topic = finding.topic if finding.topic != last else ""
        table.add_row(topic, finding.name, mark, finding.detail, finding.advice)
        last = finding.topic
    make_console(sys.stdout).print(table)
