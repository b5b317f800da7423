"""Reports which torch operators and device kernels did the work of a call, and its peak memory. Runs in the worker."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.protocol.peak_memory import PeakMemory
from torchstone.schema import Attribution, KernelShare
from torchstone.worker.kernel_resources import NAME_CHARACTERS, TritonLaunches, merged, traced_code

_MOST_NAMES = 64
"""Most operators, device kernels and compilations that a report lists."""
_LIBRARY = re.compile(
    r"at::native|at_cuda|cublas|cudnn|cutlass|cuda::detail|xmma|nvjet|gemm|gemv|splitK|cub::|thrust::|vectorized_elementwise",
    re.IGNORECASE,
)
"""Matches the names of device kernels that come from PyTorch or a CUDA library."""
_COPY = re.compile(r"memcpy|memset", re.IGNORECASE)
_NON_COMPUTING_PREFIXES = ("empty", "new_empty", "detach", "alias", "lift_fresh", "_to_copy_out")


def attribute(
    candidate: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any], with_kernels: bool
) -> Attribution:
    """Return which operators and device kernels a call runs. The device kernels are profiled in a second call."""
    seen = _watch(candidate, args, kwargs)
    if not with_kernels:
        return seen
    try:
        profile = _profiled(candidate, args, kwargs)
    except RuntimeError as error:  # another profiler is attached, or the driver refuses
        return replace(seen, note=f"no kernels seen: {error}"[:500])
    kernels, streams = _kernels(profile)
    return replace(seen, kernels=kernels, streams=streams, code=merged(traced_code(profile), seen.code, _MOST_NAMES))


def _watch(candidate: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]) -> Attribution:
    """Attribution of one call, without profiling the device: operators, Triton launches, threads and peak memory."""
    threads = len(os.listdir("/proc/self/task"))
    operators, launches, peak = _Operators(), TritonLaunches(), PeakMemory(_device_type())
    with launches, peak, operators:
        candidate(*args, **kwargs)
    return Attribution(
        dict(operators.counts.most_common(_MOST_NAMES)),
        threads_started=max(0, len(os.listdir("/proc/self/task")) - threads),
        code=launches.code()[:_MOST_NAMES],
        peak_memory_bytes=peak.size_bytes,
    )


def _device_type() -> str:
    """The type of the worker's device, which is opened before the first call."""
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def warm_up() -> None:
    """Make torch import what counting operators needs. Called in the zygote, so that no worker takes this time."""
    with _Operators():
        torch.zeros(1).add_(1)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that compute."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Override a setting of torch. Its default wraps the method below in code that imports the compiler (2 s)."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Override a setting of torch, so that compiled code runs and the operators that it calls are counted.

        With the default, a compiled function is traced again through this mode. That fails, and the function never
        runs compiled again.
        """
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _computes(func):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def _computes(operator: Any) -> bool:
    """Whether an operator computes: it is neither an allocation nor a view."""
    schema = getattr(operator, "_schema", None)
    if schema is None:
        return True
    name = schema.name.split("::")[-1]
    if name.startswith(_NON_COMPUTING_PREFIXES):
        return False
    return not any(item.alias_info is not None and not item.alias_info.is_write for item in schema.returns)


def _profiled(candidate: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """Profile the device during a call.

    ``torch.profiler`` would do the same, but imports torch's compiler to read its settings (5 s).
    """
    with torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True) as profile:
        candidate(*args, **kwargs)
        torch.cuda.synchronize()
    return profile


def _kernels(profile: Any) -> tuple[tuple[KernelShare, ...], int]:
    """Launches and total time of each device kernel in a profile, and the number of streams used."""
    triton_names = _triton_names()
    launches: Counter[str] = Counter()
    nanoseconds: Counter[str] = Counter()
    streams = set()
    for event in profile.kineto_results.events():
        if str(event.device_type()).endswith("CUDA"):
            launches[event.name()] += 1
            nanoseconds[event.name()] += event.duration_ns()
            streams.add(event.device_resource_id())
    shares = tuple(
        KernelShare(name[:NAME_CHARACTERS], _kind(name, triton_names), launches[name], total)
        for name, total in nanoseconds.most_common(_MOST_NAMES)
    )
    return shares, len(streams)


def _triton_names() -> set[str]:
    """Names of the Triton functions that this process has made."""
    return {
        item.__name__
        for item in gc.get_objects()
        if type(item).__name__ == "JITFunction" and type(item).__module__.startswith("triton")
    }


def _kind(name: str, triton_names: set[str]) -> Any:
    """Origin of a device kernel, by its name."""
    if _COPY.search(name):
        return "copy"
    if any(name == own or name.startswith(f"{own}_") for own in triton_names):
        return "triton"
    return "library" if _LIBRARY.search(name) else "cuda"
