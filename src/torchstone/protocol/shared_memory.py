"""Memory that the judge owns and shares with a worker, for the arguments of a candidate's calls.

A block of it is an *arena*. On the CPU that is a sealed memory file, whose descriptor comes with the Bind command. On
CUDA it is a dedicated ``cuMemAlloc`` block, and the command has its raw 64-byte IPC handle. PyTorch's own sharing is
not used: it pickles, and its reference counter cannot be opened under another uid. Each tensor gets its own storage, so
that a candidate sees ordinary arguments and not the arena around them.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

from torchstone.errors import InfrastructureError
from torchstone.protocol.tensor_places import KEPT_ARENA_BYTES, Segment

_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4
_F_ADD_SEALS = 1033
_GRANULARITY_BYTES = 2 << 20
"""Device arenas have a multiple of this size."""


class Memory(Protocol):
    """A block of bytes over which tensors can be created."""

    address: int

    def tensor(self, offset_bytes: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A flat tensor over part of the block, with a storage of its own."""
        ...


class HostMemory:
    """A shared mapping of a memory file."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._view = memoryview(mmap.mmap(descriptor, max(size_bytes, 1)))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._view))

    def tensor(self, offset_bytes: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        if elements == 0:
            return torch.empty(0, dtype=dtype)
        size = elements * dtype.itemsize
        return torch.frombuffer(self._view, dtype=torch.uint8, count=size, offset=offset_bytes).view(dtype)


class HostArena(HostMemory):
    """The judge's mapping of a memory file. Its size is sealed: a worker that shrank it would crash the judge."""

    device_handle: str | None = None

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = max(size_bytes, 1)
        self.descriptor = os.memfd_create("torchstone-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, self.size_bytes)
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            super().__init__(self.descriptor, self.size_bytes)
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Close the descriptor. The mapping ends with the last tensor over it."""
        os.close(self.descriptor)


_OUT_OF_MEMORY = 2


class Driver:
    """Calls of the CUDA driver that torch does not offer. torch's CUDA context must be current."""

    class Handle(ctypes.Structure):
        _fields_ = (("raw", ctypes.c_ubyte * 64),)

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._library.cuIpcOpenMemHandle_v2.argtypes = (ctypes.c_void_p, self.Handle, ctypes.c_uint)

    def _check(self, what: str, code: int) -> None:
        if code:
            raise InfrastructureError(f"{what} failed with CUDA driver error {code}.")

    def allocate(self, size_bytes: int) -> int:
        pointer = ctypes.c_uint64()
        code = self._library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        if code == _OUT_OF_MEMORY:  # torch may have free memory cached, which the driver does not get back otherwise
            torch.cuda.empty_cache()
            code = self._library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        if code == _OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(f"the device has no {size_bytes} bytes left for arguments")
        self._check("cuMemAlloc", code)
        return pointer.value

    def free(self, pointer: int) -> None:
        self._check("cuMemFree", self._library.cuMemFree_v2(ctypes.c_uint64(pointer)))

    def export(self, pointer: int) -> str:
        handle = self.Handle()
        code = self._library.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(pointer))
        self._check("cuIpcGetMemHandle", code)
        return bytes(handle.raw).hex()

    def open(self, text: str) -> int:
        handle = self.Handle.from_buffer_copy(bytes.fromhex(text))
        pointer = ctypes.c_uint64()
        lazy_peer_access = 1
        code = self._library.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, lazy_peer_access)
        self._check("cuIpcOpenMemHandle", code)
        return pointer.value

    def allocation(self, pointer: int) -> tuple[int, int]:
        """Address and size of the allocation that contains a pointer."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        code = self._library.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
        self._check("cuMemGetAddressRange", code)
        return int(base.value), int(size.value)

    def close(self, pointer: int) -> None:
        self._check("cuIpcCloseMemHandle", self._library.cuIpcCloseMemHandle(ctypes.c_uint64(pointer)))


class _CudaArray:
    """Describes raw device memory to torch, which makes a tensor over it."""

    def __init__(self, pointer: int, size_bytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class DeviceMemory:
    """Device memory at a raw address."""

    def __init__(self, pointer: int, device: torch.device) -> None:
        self.address = pointer
        self._device = device

    def tensor(self, offset_bytes: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        if elements == 0:
            return torch.empty(0, dtype=dtype, device=self._device)
        raw = _CudaArray(self.address + offset_bytes, elements * dtype.itemsize)
        return torch.as_tensor(raw, device=self._device).view(dtype)


class DeviceArena(DeviceMemory):
    """Device memory that the judge owns: a separate allocation, so that its IPC handle opens nothing else."""

    descriptor = -1

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self._driver = Driver()
        fitting = -(-max(size_bytes, 1) // _GRANULARITY_BYTES) * _GRANULARITY_BYTES
        self.size_bytes = max(fitting, KEPT_ARENA_BYTES)
        super().__init__(self._driver.allocate(self.size_bytes), device)
        self.device_handle: str | None = self._driver.export(self.address)

    def close(self) -> None:
        """Free the block. The worker's mapping of it must be gone or its process ended."""
        self._driver.free(self.address)


class OpenedDeviceMemory(DeviceMemory):
    """The judge's device memory, opened in the worker."""

    def __init__(self, handle: str, device: torch.device) -> None:
        self._driver = Driver()
        super().__init__(self._driver.open(handle), device)

    def segment(self, address: int) -> Segment:
        """The allocation of this process that contains an address, with the IPC handle by which the judge opens it."""
        begin, size_bytes = self._driver.allocation(address)
        return Segment(begin, size_bytes, self._driver.export(begin))

    def close(self) -> None:
        self._driver.close(self.address)


class MirroredMemory:
    """A copy of the judge's host memory on the worker's device, if device memory cannot be shared.

    Arguments are copied in before calls and back after them. The time of the calls includes that: a candidate must not
    see the values earlier.
    """

    def __init__(self, descriptor: int, size_bytes: int, device: torch.device) -> None:
        self._host = HostMemory(descriptor, size_bytes).tensor(0, size_bytes, torch.uint8)
        self._block = torch.empty(size_bytes, dtype=torch.uint8, device=device)
        self._device = device
        self.address = self._block.data_ptr()

    def tensor(self, offset_bytes: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        size = elements * dtype.itemsize
        if self._device.type == "cuda":
            return DeviceMemory(self.address, self._device).tensor(offset_bytes, elements, dtype)
        if elements == 0:
            return torch.empty(0, dtype=dtype)
        raw = (ctypes.c_ubyte * size).from_address(self.address + offset_bytes)
        return torch.frombuffer(raw, dtype=torch.uint8).view(dtype)

    def fetch(self, size_bytes: int) -> None:
        """Copy the first ``size_bytes`` from the judge's memory to the device."""
        self._block[:size_bytes].copy_(self._host[:size_bytes])

    def deliver(self, size_bytes: int) -> None:
        """Copy the first ``size_bytes`` back to the judge's memory. The copy is complete on return."""
        self._host[:size_bytes].copy_(self._block[:size_bytes])


Arena = HostArena | DeviceArena


@cache
def can_share(device: torch.device) -> bool:
    """Whether memory of this device can be exported to another process: a container may refuse CUDA IPC. Cached.

    The device's context must be current. A failure other than that of the export raises, and is not cached.
    """
    driver = Driver()
    pointer = driver.allocate(_GRANULARITY_BYTES)
    try:
        driver.export(pointer)
    except InfrastructureError:
        return False
    finally:
        driver.free(pointer)
    return True


class Arenas:
    """The arenas of one worker on one device. Small ones on a GPU are reused for later cases."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[DeviceArena] = []
        """Small device arenas that no case uses now."""
        self._garbage: torch.Tensor | None = None
        self._closed = False

    def take(self, size_bytes: int) -> Arena:
        """An arena of at least this size, for a case."""
        if self._device.type == "cpu":
            return HostArena(size_bytes)
        if self._free and size_bytes <= KEPT_ARENA_BYTES:
            return self._free.pop()
        return DeviceArena(size_bytes, self._device)

    def give_back(self, arena: Arena) -> None:
        """Keep a small device arena for later cases, and close any other. The worker has released it, or is dead."""
        if isinstance(arena, DeviceArena) and arena.size_bytes <= KEPT_ARENA_BYTES and not self._closed:
            self._free.append(arena)
        else:
            arena.close()

    def garbage(self, size_bytes: int, make: Callable[[int, torch.device], torch.Tensor]) -> torch.Tensor:
        """At least ``size_bytes`` random bytes on the device, made at the first use."""
        if self._garbage is None or self._garbage.numel() < 2 * size_bytes:
            self._garbage = make(2 * size_bytes, self._device)
        return self._garbage

    def close(self) -> None:
        """Close all free arenas. The worker is dead."""
        self._closed, self._garbage = True, None
        while self._free:
            self._free.pop().close()
