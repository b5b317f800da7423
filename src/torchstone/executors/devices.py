"""Finds the devices of this machine that judges are assigned to. Asks the driver (NVML), never torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from torchstone.errors import DeviceUnavailableError
from torchstone.executors.machine import cpu_model, nvidia


class Device(msgspec.Struct, frozen=True):
    """One device."""

    kind: str
    """``cpu`` or ``cuda``."""
    label: str
    """As the user names it: ``cuda:1``. Numbered in the order of CUDA_VISIBLE_DEVICES, without that in PCI order."""
    name: str
    """The same for every process of this machine, whatever it sees: it names the lock for measuring (lane)."""
    uuid: str | None = None
    model: str = ""
    """Its type, as records name it: ``NVIDIA H200``, or the model of the processor."""
    slot: int = 0
    slots: int = 1
    """Which of how many devices this one is that share the cores of a machine."""

    def environment(self) -> dict[str, str]:
        """Variables that make a process see this device alone."""
        return {} if self.uuid is None else {"CUDA_VISIBLE_DEVICES": self.uuid}


def find_devices(wanted: str) -> list[Device]:
    """The devices behind ``cpu``, ``cuda`` (all visible) or ``cuda:N``."""
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
    """The cores of this machine as so many devices, each with a lane of its own; or only one of them."""
    chosen = range(slots) if only is None else (only,)
    return [Device("cpu", "cpu", f"cpu:{slot}", model=cpu_model(), slot=slot, slots=slots) for slot in chosen]


def visible_uuids(environment: Mapping[str, str]) -> list[str]:
    """UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all of them if it is not set."""
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
