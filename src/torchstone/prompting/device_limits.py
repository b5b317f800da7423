"""Describes for a prompt the device that a kernel runs on, and its limits of time, threads and memory."""

from __future__ import annotations

import msgspec

from torchstone.executors.machine import hardware
from torchstone.schema import Deadlines, Hardware, Limits


class DeviceLimits(msgspec.Struct, frozen=True):
    """The device on which a kernel runs, and the limits of its process."""

    device_type: str
    """``cpu`` or ``cuda``."""
    name: str = ""
    """Name of the processor or the GPU; empty: not known."""
    capability: str | None = None
    """CUDA compute capability: ``9.0``."""
    memory_bytes: int = 0
    """Memory of the device; 0 if it is not known."""
    threads: int = 1
    """CPU threads of the kernel and of the reference alike."""
    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()

    def lines(self) -> list[str]:
        """The facts as sentences for a prompt."""
        return [*self._hardware(), *self._bounds()]

    def _hardware(self) -> list[str]:
        named = f" ({self.name})" if self.name else ""
        if self.device_type != "cuda":
            threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
            return [f"All tensors are on the CPU{named}. Kernel and reference may use {threads}."]
        capability = f", compute capability {self.capability}" if self.capability else ""
        memory = f", {self.memory_bytes / 2**30:.0f} GiB of memory" if self.memory_bytes else ""
        return [f"All tensors are on a CUDA GPU{named}{capability}{memory}."]

    def _bounds(self) -> list[str]:
        within = self.deadlines
        return [
            f"Importing the file may take {within.load_seconds:g} s, the first call of a case (with compiling) "
            f"{within.compile_seconds:g} s, all checks of a case {within.check_seconds:g} s.",
            f"The kernel's process may use {self.limits.memory_bytes / 2**30:.0f} GiB of memory.",
            "It has no network and can write only to a scratch folder.",
        ]


def limits_of(
    device: str,
    *,
    threads: int = 1,
    deadlines: Deadlines | None = None,
    limits: Limits | None = None,
    machine: Hardware | None = None,
) -> DeviceLimits:
    """The limits on a device, ``cpu`` or ``cuda:0``. Opens no device and does not import torch.

    ``machine``: the machine on which kernels run; None: this one.
    """
    kind, _, index = device.partition(":")
    bounds = (threads, deadlines or Deadlines(), limits or Limits())
    machine = machine or hardware()
    if kind != "cuda":
        return DeviceLimits(kind, machine.cpu, None, machine.memory_bytes, *bounds)
    found = next((gpu for gpu in machine.gpus if gpu.index == int(index or 0)), None)
    if found is None:
        return DeviceLimits(kind, "", None, 0, *bounds)
    return DeviceLimits(kind, found.name, found.capability, found.memory_bytes, *bounds)
