"""Reports registers and spills of the built-in Triton kernels, compiled for GPUs that need not be in this machine.

Every kernel is called as users call it, with meta tensors, and each launch is replaced by compiling for each
architecture. So exactly the launched kernels are compiled, and this module needs no list of their parameters.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from torchstone.errors import InfrastructureError, UsageError
from torchstone.kernels import autograd_functions
from torchstone.kernels.catalogue import is_interpreted, what_is_missing

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities times 10: A100, H100 and H200, B200."""
ROWS, SHORT, WIDE, LONG = 4096, 1000, 8000, 20_000
"""Number of rows, and columns of three kinds of rows: short, long but held by one program, read in several blocks."""
_USED = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")


class Resources(NamedTuple):
    """Registers and spills of one kernel on one architecture."""

    kernel: str
    """`gelu_backward: _gelu_backward(TANH=True)`."""
    architecture: str
    """`sm_90`."""
    registers: int
    """Registers of a thread."""
    spill_bytes: int
    """Stack and local memory of a thread in bytes. These kernels use it only for spilled registers."""


def triton_resources(
    architectures: Sequence[int] = ARCHITECTURES, dtype: torch.dtype = torch.float32
) -> list[Resources]:
    """Compile all kernels, forward and backward, for tensors of the dtype."""
    missing = what_is_missing("triton")
    if missing is not None:
        raise UsageError(f"implementation 'triton': {missing}")
    if is_interpreted():
        raise UsageError("TRITON_INTERPRET=1 is set, and the interpreter compiles nothing. Unset it.")
    found: dict[tuple[str, str], Resources] = {}
    with _compiling_in_place_of_launching(architectures, found):
        _call_every_function(dtype)
    return list(found.values())


def _call_every_function(dtype: torch.dtype) -> None:
    """Call every function, with gradients, in every form that has its own kernels."""
    x, target = _leaf(dtype, ROWS, SHORT), _leaf(dtype, ROWS, SHORT).detach()
    for approximate in ("none", "tanh"):
        _backward(autograd_functions.gelu(x, approximate))
    _backward(autograd_functions.swish(x))
    for reduction in ("none", "mean"):
        _backward(autograd_functions.mse_loss(x, target, reduction))
    for columns in (SHORT, WIDE, LONG):
        rows = _leaf(dtype, ROWS, columns), _leaf(dtype, columns), _leaf(dtype, columns)
        _backward(autograd_functions.layer_norm(*rows))
        _backward(autograd_functions.layer_norm_gelu(*rows))
    indices = torch.empty(ROWS, dtype=torch.int64, device="meta")
    for columns in (SHORT, LONG):
        _backward(autograd_functions.cross_entropy(_leaf(dtype, ROWS, columns), indices))
    weight = _leaf(dtype, SHORT).detach()
    _backward(autograd_functions.cross_entropy(x, target, weight, label_smoothing=0.1))


def _leaf(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def _backward(result: torch.Tensor) -> None:
    result.backward(torch.empty_like(result))  # type: ignore[no-untyped-call]


@contextmanager
def _compiling_in_place_of_launching(
    architectures: Sequence[int], found: dict[tuple[str, str], Resources]
) -> Iterator[None]:
    from triton.runtime.jit import JITFunction

    def compile_for_all(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        for architecture in architectures:
            made = _compiled(kernel, architecture, args, options)
            entry = Resources(_title(kernel, options), f"sm_{architecture}", *_used(made))
            found[entry.kernel, entry.architecture] = entry

    launch, accepts = JITFunction.run, autograd_functions._require_device
    JITFunction.run = compile_for_all
    autograd_functions._require_device = lambda impl, device_type: None
    try:
        yield
    finally:
        JITFunction.run, autograd_functions._require_device = launch, accepts


def _compiled(kernel: Any, architecture: int, args: Sequence[Any], options: dict[str, Any]) -> bytes:
    """Compile as Triton's launch does: specialized for the arguments' types and sizes divisible by 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    target = GPUTarget("cuda", architecture, 32)
    backend = make_backend(target)
    given = {"debug": False, **options}
    bound, specialization, left = create_function_from_signature(kernel.signature, kernel.params, backend)(
        *args, **given
    )
    chosen, signature, constants, attributes = kernel._pack_args(backend, given, bound, specialization, left)
    source = ASTSource(kernel, signature, constants, attributes)
    binary: bytes = triton.compile(source, target=target, options=chosen.__dict__).asm["cubin"]
    return binary


def _used(binary: bytes) -> tuple[int, int]:
    """Registers and spilled bytes of a compiled kernel, read by NVIDIA's cuobjdump, which Triton includes."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    match = _USED.search(told.stdout)
    if match is None:
        raise InfrastructureError(f"cuobjdump reports no resources of a kernel: {(told.stderr or told.stdout).strip()}")
    registers, stack, local = map(int, match.groups())
    return registers, stack + local


def _title(kernel: Any, options: dict[str, Any]) -> str:
    constants = ", ".join(f"{name}={value}" for name, value in options.items() if name.isupper())
    home = kernel.fn.__module__.removeprefix("torchstone_kernels_").removeprefix("triton_").removesuffix("_triton")
    return f"{home}: {kernel.fn.__name__}({constants})"
