"""Reads the state of one CUDA device from its driver (NVML), without special rights. Any value may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_CLOCK_REASON_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons (nvmlClocksEventReason*)."""
_SLOWED_FIELDS = {
    74: "power cap",
    75: "thermal limit",
    77: "board limit",
    79: "reliability limit",
    269: "software thermal",
    270: "hardware thermal",
    271: "power brake",
}
"""Fields NVML_FI_DEV_PERF_POLICY_* and NVML_FI_DEV_CLOCKS_EVENT_REASON_*: how long each has lowered the clocks."""
_ENERGY_FIELD = 83
"""NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, millijoules since the driver was loaded."""
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of NVML's value union, indexed by its number of the value's type."""


class NvmlDevice:
    """One device. ``nvml``: the module ``pynvml``, or a replacement in tests."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        # Each field is tried alone once: a driver may refuse a whole list because of one unknown field.
        self._fields = [field for field in (*_SLOWED_FIELDS, _ENERGY_FIELD) if self._read_fields([field])]

    @classmethod
    def open(cls, uuid: str | None, nvml: Any = None) -> NvmlDevice | None:
        """The device with this UUID, or the first one. None: there is no driver, or it does not know the device."""
        if nvml is None:
            nvml = importlib.import_module("pynvml")
        try:
            nvml.nvmlInit()
            if uuid is None:
                return cls(nvml, nvml.nvmlDeviceGetHandleByIndex(0))
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
        except nvml.NVMLError:
            return None

    def counters(self) -> tuple[dict[str, int], int | None]:
        """How long each reason has lowered the clocks, and the energy drawn in millijoules. Takes milliseconds."""
        values = self._read_fields(self._fields)
        energy = values.pop(_ENERGY_FIELD, None)
        return {_SLOWED_FIELDS[field]: value for field, value in values.items()}, energy

    def _read_fields(self, fields: list[int]) -> dict[int, int]:
        if not fields:
            return {}
        found = self._read_or_none(lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, fields))
        supported = {} if found is None else {item.fieldId: item for item in found if item.nvmlReturn == 0}
        return {field: int(getattr(item.value, _VALUE_MEMBERS[item.valueType])) for field, item in supported.items()}

    def slowing(self) -> tuple[str, ...]:
        """Reasons that lower the clocks at this moment. Fast to read."""
        bits = self._read_or_none(lambda: self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)) or 0
        return tuple(name for bit, name in _CLOCK_REASON_BITS.items() if bits & bit)

    def readings(self) -> dict[str, Any]:
        """Present clocks, temperature, power and throttle reasons, as fields of ``DeviceState``."""
        nvml, handle = self._nvml, self._handle
        milliwatts = self._read_or_none(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return {
            "sm_clock_mhz": self._read_or_none(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": self._read_or_none(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_celsius": self._read_or_none(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            "power_watts": None if milliwatts is None else milliwatts / 1000,
            "throttle_reasons": self.slowing(),
        }

    def process_numbers(self) -> list[int] | None:
        """Process ids, as the driver knows them, of all programs that compute on the device."""
        found = self._read_or_none(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return None if found is None else [item.pid for item in found]

    def _read_or_none(self, read: Callable[[], T]) -> T | None:
        """The result of a call of NVML; None if the device or its driver does not support it."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None
