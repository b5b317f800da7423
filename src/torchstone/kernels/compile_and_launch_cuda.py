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
"""dtype -> its type in `cuda_source.NUMBERS`."""
_SLOT_BYTES = 8
"""Size of the slot that each parameter takes in the buffer."""


class Loaded(NamedTuple):
    """A kernel that is loaded on a device."""

    function: int
    """The driver's handle."""
    layout: struct.Struct
    """Layout of the packed arguments."""
    buffers: threading.local
    """Buffers of packed arguments, one per thread, since the backward pass runs in its own threads."""


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
        """Number of blocks that run at once on a multiprocessor, for grids of kernels whose blocks loop over rows."""
        device = device_of(on)
        loaded = self._loaded.get((device, *constants.items())) or self._load(device, arguments, constants)
        return _blocks_at_once(loaded.function, threads, device)

    def text(self, constants: dict[str, Constant]) -> str:
        """The source with its constants as macros. Compiler options would also affect headers that use short names."""
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
    """Number of multiprocessors of a GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def architecture_of(device: int) -> str:
    """Architecture of a GPU, such as `sm_90`."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


_blocks_at_once = functools.cache(blocks_at_once)


def _macro(value: Constant) -> str:
    return C_NAMES[value] if isinstance(value, torch.dtype) else str(int(value))


def _format(argument: Argument) -> str:
    """`struct` format of one argument's slot."""
    if isinstance(argument, float):
        return "f4x"
    return "q" if isinstance(argument, int) else "Q"


def _buffers(count: int) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_void_p]]:
    """A buffer for the arguments, and an array with the address of each, which the driver takes."""
    values = ctypes.create_string_buffer(count * _SLOT_BYTES)
    start = ctypes.addressof(values)
    return values, (ctypes.c_void_p * count)(*(start + place * _SLOT_BYTES for place in range(count)))
