"""Finds the devices of this machine that judges are assigned to. Uses the driver (NVML), never torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from torchstone.errors import DeviceUnavailableError
from torchstone.executors.machine import cpu_model, nvidia


class Device(msgspec.Struct, frozen=True):
    """A device that judges use: a GPU, or a group of CPU cores."""

    kind: str
    """``cpu`` or ``cuda``."""
    label: str
    """The user's name for it: ``cuda:1``. Numbers follow CUDA_VISIBLE_DEVICES, or the PCI order if that is not set."""
    name: str
    """Name that every process of this machine uses for it. The lock for measuring (lane) has this name."""
    uuid: str | None = None
    model: str = ""
    """Its type in records: ``NVIDIA H200``, or the model of the processor."""
    slot: int = 0
    """Number of this group of cores."""
    slots: int = 1
    """Number of groups into which the machine's cores are divided."""

    def environment(self) -> dict[str, str]:
        """Environment variables that make only this device visible to a process."""
        return {} if self.uuid is None else {"CUDA_VISIBLE_DEVICES": self.uuid}


def find_devices(wanted: str) -> list[Device]:
    """The devices that ``cpu``, ``cuda`` (all visible) or ``cuda:N`` names. Raises DeviceUnavailableError for none."""
    if wanted == "cpu":
        return [Device("cpu", "cpu", "cpu", model=cpu_model())]
    uuids = visible_uuids(os.environ)
    if not uuids:
        raise DeviceUnavailableError("no CUDA device is visible. Run with --device cpu, or see 'torchstone doctor'.")
    models = {gpu.uuid: gpu.name for gpu in nvidia().gpus}
    devices = [Device("cuda", f"cuda:{index}", uuid, uuid, models.get(uuid, "")) for index, uuid in enumerate(uuids)]
    if wanted == "cuda":
        return devices
    chosen = [device for device in devices if device.label == wanted]
    if not chosen:
        raise DeviceUnavailableError(f"device '{wanted}' is not here. Visible: {', '.join(d.label for d in devices)}.")
    return chosen


def cpu_slots(slots: int, only: int | None = None) -> list[Device]:
    """The cores of this machine as ``slots`` devices, each with a lane of its own; with ``only``, one of them."""
    chosen = range(slots) if only is None else (only,)
    return [Device("cpu", "cpu", f"cpu:{slot}", model=cpu_model(), slot=slot, slots=slots) for slot in chosen]


def visible_uuids(environment: Mapping[str, str]) -> list[str]:
    """UUIDs of the GPUs in CUDA_VISIBLE_DEVICES, in its order; of all GPUs if it is not set."""
    present = _nvml_uuids()
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    found: list[str] = []
    for entry in (part.strip() for part in chosen.split(",")):
        match = [
            uuid for index, uuid in enumerate(present) if entry and (entry == str(index) or uuid.startswith(entry))
        ]
        if not match:
            break  # as CUDA does: an invalid entry ends the list
        found.append(match[0])
    return found


def _nvml_uuids() -> list[str]:
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
