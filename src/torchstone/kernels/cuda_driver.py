"""Calls the CUDA driver through ctypes: loads kernels, asks for their occupancy, enters torch's context of a device.

The driver exists wherever torch can use a GPU, so nothing else must be installed. The module
`compile_and_launch_cuda` launches kernels with it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchstone.errors import InfrastructureError

INVALID_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT: this thread has not called CUDA yet."""
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: loading code is allowed while a graph is captured."""


class DriverError(InfrastructureError):
    """The CUDA driver refused to load or to launch a kernel."""


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library, which torch has loaded already."""
    library = ctypes.CDLL("libcuda.so.1")
    unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
    library.cuLaunchKernel.argtypes = [pointer, *[unsigned] * 7, pointer, pointer, pointer]
    return library


def check(status: int, doing: str) -> None:
    """Raise a `DriverError` with the driver's name of the status, unless it is 0 (success)."""
    if status:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise DriverError(f"the CUDA driver failed at {doing}: {(name.value or b'').decode() or status}")


def load_function(cubin: bytes, name: str, device: int) -> int:
    """Load a kernel into torch's context of the device, for good. Returns the driver's handle of it."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with _in_context(device), _captures_relaxed():
        check(driver().cuModuleLoadData(ctypes.byref(module), cubin), f"loading '{name}'")
        check(driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"finding '{name}'")
    return function.value or 0


def blocks_at_once(function: int, threads: int, device: int) -> int:
    """How many blocks of this kernel one multiprocessor holds."""
    blocks = ctypes.c_int()
    with _in_context(device):
        status = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(blocks), ctypes.c_void_p(function), threads, ctypes.c_size_t(0)
        )
        check(status, "asking for the occupancy")
    return blocks.value


def enter_context(device: int) -> None:
    """Make torch's context of the device the current one of this thread."""
    check(driver().cuCtxSetCurrent(_primary_context(device)), "entering the context")


@functools.cache
def _primary_context(device: int) -> ctypes.c_void_p:
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    check(driver().cuDeviceGet(ctypes.byref(handle), device), "finding the device")
    check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "finding the context")
    return context


@contextmanager
def _in_context(device: int) -> Iterator[None]:
    previous = ctypes.c_void_p()
    check(driver().cuCtxPushCurrent_v2(_primary_context(device)), "entering the context")
    try:
        yield
    finally:
        driver().cuCtxPopCurrent_v2(ctypes.byref(previous))


@contextmanager
def _captures_relaxed() -> Iterator[None]:
    mode: Any = ctypes.c_int(_RELAXED)
    driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
