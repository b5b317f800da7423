"""What a device is doing: clocks, temperature, power, throttling. Reads only; never changes a setting."""

from __future__ import annotations

import os

from torchstone.schema import DeviceState

_THROTTLE_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class DeviceProbe:
    """Reads the state of one device; what the device does not tell stays None."""

    def __init__(self, device_type: str, uuid: str | None = None) -> None:
        self._handle = _nvml_handle(uuid) if device_type == "cuda" else None

    def state(self) -> DeviceState:
        """One reading."""
        load_average = round(os.getloadavg()[0], 2)
        if self._handle is None:
            return DeviceState(load_average=load_average)
        return _nvml_state(self._handle, load_average)


def _nvml_handle(uuid: str | None) -> object | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        if uuid is not None:
            return pynvml.nvmlDeviceGetHandleByUUID(uuid)  # type: ignore[no-any-return]
        return pynvml.nvmlDeviceGetHandleByIndex(0)  # type: ignore[no-any-return]
    except pynvml.NVMLError:
        return None


def _nvml_state(handle: object, load_average: float) -> DeviceState:
    import pynvml

    try:
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        return DeviceState(
            sm_clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            temperature_celsius=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            power_watts=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            throttle_reasons=tuple(name for bit, name in _THROTTLE_BITS.items() if reasons & bit),
            load_average=load_average,
        )
    except pynvml.NVMLError:
        return DeviceState(load_average=load_average)
