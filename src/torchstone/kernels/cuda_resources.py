"""Reports registers and spills of the built-in CUDA kernels, from the compiler's log. No GPU is needed.

The constants are those of real launches: the largest number of elements per thread that each kernel is launched with.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from torchstone.kernels.compile_and_launch_cuda import Constant, CudaKernel
from torchstone.kernels.cuda_compilers import compiler
from torchstone.kernels.cuda_launch_geometry import (
    ADD_THREADS,
    BYTES_OF_THREAD,
    ELEMENTWISE_THREADS,
    LOAD_BYTES,
    WARP,
    RowPlan,
    plan_rows,
)

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
DTYPES = (torch.float32, torch.bfloat16)
"""Compiled dtypes. float16 is left out: it differs from bfloat16 only in how a number is converted."""

_USED = re.compile(r"Used (\d+) registers")
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")

ELEMENTWISE = (
    "gelu._gelu",
    "gelu_backward._gelu_backward",
    "silu._silu",
    "silu_backward._silu_backward",
    "mse_loss._squares",
    "mse_loss_backward._one_gradient",
    "mse_loss_backward._many_gradients",
)


class Resources(NamedTuple):
    """Registers and spills of one kernel on one architecture."""

    kernel: str
    """Operator, function and variant: `native_layer_norm short_rows float32 1024 columns`."""
    architecture: str
    """Such as `sm_90`."""
    registers: int
    """Registers per thread."""
    spill_bytes: int
    """Bytes per thread that are stored to and loaded from memory because registers do not suffice."""


class Variant(NamedTuple):
    """A kernel with the constants of one launch."""

    name: str
    """As in `Resources.kernel`."""
    kernel: CudaKernel
    constants: dict[str, Constant]


def resources(architectures: Sequence[str] = ARCHITECTURES, only: str = "") -> list[Resources]:
    """Compile all variants, or those with `only` in their names, for each architecture."""
    chosen = [variant for variant in variants() if only in variant.name]
    return [resources_of(variant, architecture) for architecture in architectures for variant in chosen]


def resources_of(variant: Variant, architecture: str) -> Resources:
    """Compile one variant, without the cache."""
    log = compiler().compile(variant.kernel.text(variant.constants), architecture, ()).log
    registers = max(int(number) for number in _USED.findall(log))
    spilled = sum(int(stored) + int(loaded) for stored, loaded in _SPILLED.findall(log))
    return Resources(variant.name, architecture, registers, spilled)


def variants() -> Iterator[Variant]:
    """Yield every kernel, for each dtype and division of rows among threads."""
    for dtype in DTYPES:
        yield from _elementwise(dtype)
        yield from _mse_loss(dtype)
        yield from _layer_norm(dtype)
        yield from _fused(dtype)
        yield from _cross_entropy(dtype)


def _kernel(path: str) -> CudaKernel:
    """`gelu._gelu`: the kernel of that name in the file of that operator."""
    operator, name = path.split(".")
    found: CudaKernel = getattr(importlib.import_module(f"torchstone.kernels.cuda.{operator}.{operator}"), name)
    return found


def _elementwise(dtype: torch.dtype) -> Iterator[Variant]:
    vec = LOAD_BYTES // dtype.itemsize
    sizes = {"VEC": vec, "LOADS": BYTES_OF_THREAD // LOAD_BYTES, "THREADS": ELEMENTWISE_THREADS}
    for path in ELEMENTWISE:
        for tanh in (False, True) if "gelu" in path else (False,):
            constants = {**_dtypes(dtype), **sizes, "TANH": tanh}
            yield Variant(f"{_title(path, dtype)}{' tanh' if tanh else ''}", _kernel(path), constants)


def _mse_loss(dtype: torch.dtype) -> Iterator[Variant]:
    for vec in (LOAD_BYTES // dtype.itemsize, 1):
        sizes = {"VEC": vec, "LOADS": 8 // vec, "THREADS": ELEMENTWISE_THREADS}
        title = f"{_title('mse_loss._sum_of_squares', dtype)} loads of {vec}"
        yield Variant(title, _kernel("mse_loss._sum_of_squares"), {**_dtypes(dtype), **sizes})
    yield _of_sums("mse_loss._add_sums", dtype)


def _of_sums(path: str, dtype: torch.dtype) -> Variant:
    return Variant(_title(path, dtype), _kernel(path), {**_dtypes(dtype), "THREADS": ADD_THREADS})


def _layer_norm(dtype: torch.dtype) -> Iterator[Variant]:
    forward, backward = "native_layer_norm._short_rows", "native_layer_norm_backward._short_rows"
    for columns, vec in _rows(dtype):
        plan = plan_rows(columns, vec, 32, WARP) or plan_rows(columns, vec, 16, 1024)
        yield _of_rows(forward, dtype, columns, plan)
        plan = plan_rows(columns, vec, 8, 512)
        prefetch = plan is not None
        plan = plan or plan_rows(columns, vec, 16, 512)
        if plan is not None:
            yield _of_rows(backward, dtype, columns, plan, PREFETCH=prefetch)
    vec = LOAD_BYTES // dtype.itemsize
    for path, threads in (
        ("native_layer_norm._long_rows", 512),
        ("native_layer_norm_backward._long_rows", 512),
        ("native_layer_norm_backward._column_sums", 256),
        ("native_layer_norm_backward._add_columns", 1024),
    ):
        yield Variant(_title(path, dtype), _kernel(path), {**_dtypes(dtype), "VEC": vec, "THREADS": threads})


def _fused(dtype: torch.dtype) -> Iterator[Variant]:
    fused = importlib.import_module("torchstone.kernels.fused.layer_norm_gelu_cuda")
    for tanh in (False, True):
        for columns, vec in _rows(dtype):
            plan = plan_rows(columns, vec, 32, WARP) or plan_rows(columns, vec, 16, 1024)
            title = f"layer_norm_gelu {{}} {_short(dtype)}{' tanh' if tanh else ''}"
            shown = f" {columns} columns"
            if plan is not None:
                constants = {**_dtypes(dtype), **plan._asdict(), "TANH": tanh}
                yield Variant(title.format("forward") + shown, fused._forward, constants)
            plan = fused.plan_backward(columns, vec)
            if plan is not None:
                constants = {**_dtypes(dtype), **plan._asdict(), "TANH": tanh}
                yield Variant(title.format("backward") + shown, fused._backward, constants)
        long = {**_dtypes(dtype), "VEC": LOAD_BYTES // dtype.itemsize, "THREADS": 512, "TANH": tanh}
        yield Variant(title.format("forward") + " long rows", fused._forward_long, long)
        yield Variant(title.format("backward") + " long rows", fused._backward_long, long)


def _cross_entropy(dtype: torch.dtype) -> Iterator[Variant]:
    vec = LOAD_BYTES // dtype.itemsize
    for columns, loaded in ((8, vec), (128, vec), (512, vec), (301, 1)):
        plan = plan_rows(columns, loaded, 16, WARP, 1)
        yield _of_rows("cross_entropy_loss._short_rows", dtype, columns, plan, EXACT=columns != 301)
    yield _of_sums("cross_entropy_loss._add_sums", dtype)
    for path in ("cross_entropy_loss._forward", "cross_entropy_loss._backward"):
        for kind, shown in enumerate(("plain", "smoothed", "probabilities")):
            for lanes, threads in ((8, 128), (512, 512)):
                sizes = {"KIND": kind, "VEC": vec, "LOADS": 16 // vec, "LANES": lanes, "THREADS": threads}
                title = f"{_title(path, dtype)} {shown} {lanes} threads per row"
                yield Variant(title, _kernel(path), {**_dtypes(dtype), **sizes})


def _rows(dtype: torch.dtype) -> Iterator[tuple[int, int]]:
    """Yield columns and elements per load: rows for parts of a warp, warps and blocks, and unaligned rows."""
    vec = LOAD_BYTES // dtype.itemsize
    yield from ((columns, vec) for columns in (8, 128, 1024, 4096, 8192, 16384))
    yield 1001, 1


def _of_rows(path: str, dtype: torch.dtype, columns: int, plan: RowPlan | None, **more: Constant) -> Variant:
    assert plan is not None
    constants = {**_dtypes(dtype), **plan._asdict(), **more}
    return Variant(f"{_title(path, dtype)} {columns} columns", _kernel(path), constants)


def _dtypes(dtype: torch.dtype) -> dict[str, Constant]:
    return dict.fromkeys("TGWDP", dtype)


def _title(path: str, dtype: torch.dtype) -> str:
    return f"{path.replace('._', ' ')} {_short(dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
