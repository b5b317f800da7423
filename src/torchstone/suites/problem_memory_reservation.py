"""Reserves memory for running KernelBench problem files, in the memory ledger that all judges of the machine use.

The process that runs a problem is in a sandbox and cannot reserve memory. It answers how much memory the problem needs.
Its parent waits until that much is reserved, and sends the problem again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchstone.errors import DeviceUnavailableError
from torchstone.executors.devices import find_devices
from torchstone.executors.machine import hardware
from torchstone.processes.free_memory import host_bytes, usable_host_bytes
from torchstone.processes.memory_ledger import (
    MemoryLedger,
    device_capacity,
    device_ledger,
    host_ledger,
    small_bytes,
)

_HOST_MEMORY_DIVISOR = 8
"""A problem may use one eighth of the host's memory. Judging its case takes several times as much, so the case
of a larger problem could not be judged anyway."""


class ProblemMemory:
    """The memory of the device on which problems are run to learn their inputs."""

    def __init__(self, device_type: str) -> None:
        self._is_host = device_type == "cpu"
        self._total_bytes = host_bytes() if self._is_host else 0
        self._ledger: MemoryLedger | None = host_ledger() if self._is_host else None
        if not self._is_host:
            self._find_device(device_type)

    def _find_device(self, device_type: str) -> None:
        """Find the device and its ledger. Without a device every problem fails later, with its own message."""
        try:
            name = find_devices(device_type)[0].name
        except DeviceUnavailableError:
            return
        self._total_bytes = max((gpu.memory_bytes for gpu in hardware().gpus if gpu.uuid == name), default=0)
        if self._total_bytes:
            self._ledger = device_ledger(name, self._total_bytes)

    @property
    def small_bytes(self) -> int:
        """Memory that a problem may use without a reservation."""
        return small_bytes(self._total_bytes)

    @property
    def most_bytes(self) -> int:
        """Memory that a problem may use when no other process has reserved memory."""
        return self._total_bytes // _HOST_MEMORY_DIVISOR if self._is_host else device_capacity(self._total_bytes)

    @property
    def usable_bytes(self) -> int:
        """Memory that a problem with a reservation may use now. On a GPU the reader process checks what is free."""
        return min(self.most_bytes, usable_host_bytes()) if self._is_host else self.most_bytes

    def takes_reservation(self, size_bytes: int) -> bool:
        """Whether a problem that uses this much memory needs a reservation."""
        return self._ledger is not None and size_bytes > self.small_bytes

    @contextmanager
    def reserved(self, size_bytes: int, gives_up: Callable[[], bool]) -> Iterator[None]:
        """Reserve memory for the block, if the size needs a reservation.

        The block runs without a reservation if `gives_up` ended the waiting: the caller must check this.
        """
        if self._ledger is None or not self.takes_reservation(size_bytes):
            yield
            return
        reservation = self._ledger.reserve(size_bytes, gives_up)
        try:
            yield
        finally:
            if reservation is not None:
                reservation.release()
