"""Copies results into the judge's memory, if the judge cannot read the worker's memory. Runs in the worker."""

from __future__ import annotations

import ctypes
import os

import torch

from torchstone.protocol.commands import Copy
from torchstone.protocol.shared_memory import DeviceMemory, HostMemory


class ResultCopier:
    """Copies between the worker's memory and that of the judge, which reads results or overwrites them with garbage."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: HostMemory | None = None

    def copy(self, command: Copy, descriptor: int | None) -> None:
        """Carry out a command. A descriptor that comes with it is the judge's memory, for this and later commands."""
        if descriptor is not None:
            self._memory = HostMemory(descriptor, command.memory_bytes)
            os.close(descriptor)
        assert self._memory is not None, "Copy without memory"
        for address, offset, size in command.pieces:
            if self._device.type == "cpu":
                ours = self._memory.address + offset
                ctypes.memmove(*((ours, address) if command.outward else (address, ours)), size)
            else:
                ours_tensor = self._memory.tensor(offset, size, torch.uint8)
                theirs = DeviceMemory(address, self._device).tensor(0, size, torch.uint8)
                (ours_tensor if command.outward else theirs).copy_(theirs if command.outward else ours_tensor)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
