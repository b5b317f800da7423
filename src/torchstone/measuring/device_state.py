"""Reads the state of a device and its machine, and tells whether a round of timed blocks was disturbed.

A *state* is for the record: clocks, temperature, other processes. A *glance* is taken before and after a round. It
reads counters that only grow, so that no short disturbance by the host is missed. Of the device it reads what lowers
the clocks at that moment: the device's own counters are too slow, and are read once before and after all rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from torchstone.measuring.nvml import NvmlDevice
from torchstone.measuring.processor_load import Processor
from torchstone.schema import DeviceState, Disturbance

_WAITED_SHARE = 0.01
_LEAST_WAIT_NS = 50_000
"""A worker that is woken has no core for some microseconds, every time."""
_PRESSED_SHARE = 0.1
"""Of the machine as a whole: its other cores are always doing something."""


BY_THE_HOST = ("waited for a core", "machine overloaded", "core taken by the host", "core quota used up")
"""Disturbances that come from the host."""


class Glance(msgspec.Struct, frozen=True):
    """One reading. Its counters have a meaning only as a difference, see :func:`disturbances`."""

    taken_ns: int
    slowing: tuple[str, ...] = ()
    """What lowers the device's clocks at this moment."""
    slowed: dict[str, int] = {}
    """How long each reason has lowered the device's clocks, in the driver's unit; empty unless asked for."""
    energy_millijoules: int | None = None
    """None unless asked for."""
    waited_ns: dict[int, int] = {}
    """By worker, how long it was ready to run and had no core."""
    pressure_us: int | None = None
    """How long some thread of the machine was ready to run and had no core."""
    stolen_ticks: int | None = None
    throttled_us: int | None = None


class DeviceProbe:
    """Reads the state of one device; what it does not report is None."""

    def __init__(
        self, device_type: str, uuid: str | None = None, cores: tuple[int, ...] = (), *, nvml: Any = None
    ) -> None:
        """``cores``: those that workers are bound to, if they are to any; ``nvml`` stands in for the module pynvml."""
        self._gpu = NvmlDevice.open(uuid, nvml) if device_type == "cuda" else None
        self._processor = Processor(cores)
        # On CUDA the thread that launches is the one that matters, and a context brings a dozen others.
        self._all_threads = device_type == "cpu"

    def state(self) -> DeviceState:
        """One full reading."""
        numbers = self._gpu.process_numbers() if self._gpu is not None else None
        return DeviceState(
            **(self._gpu.readings() if self._gpu is not None else {}),
            load_average=round(os.getloadavg()[0], 2),
            cpu_mhz=self._processor.clock_mhz(),
            processes=None if numbers is None else len(numbers),
            other_processes=None if numbers is None else self._others(numbers),
        )

    def _others(self, numbers: list[int]) -> int | None:
        """How many of them are neither this process nor started by it.

        A judge on this device is in the list. If it is not, the driver numbers processes as somebody outside of our
        container sees them, and a number says nothing.
        """
        if numbers and os.getpid() not in numbers:
            return None
        return sum(not self._processor.descends_from(number, os.getpid()) for number in numbers)

    def glance(self, workers: Collection[int] = (), *, counters: bool = False) -> Glance:
        """One reading, as cheap as it gets; ``workers`` are the processes of the parties.

        ``counters``: those of the device too, which miss nothing but take it milliseconds to tell.
        """
        slowed, energy = self._gpu.counters() if self._gpu is not None and counters else ({}, None)
        return Glance(
            time.monotonic_ns(),
            self._gpu.slowing() if self._gpu is not None else (),
            slowed,
            energy,
            self._processor.waited_ns(workers, self._all_threads),
            self._processor.pressure_us(),
            self._processor.stolen_ticks(),
            self._processor.throttled_us(),
        )


def disturbances(before: Glance, after: Glance) -> tuple[str, ...]:
    """Disturbances between two glances, by name; none for counters that one of them lacks."""
    return tuple(_reasons(before, after))


def _reasons(before: Glance, after: Glance) -> Iterator[str]:
    window_ns = after.taken_ns - before.taken_ns
    grown = [name for name, value in after.slowed.items() if value > before.slowed.get(name, value)]
    yield from dict.fromkeys([*grown, *before.slowing, *after.slowing])
    waits = [value - before.waited_ns[pid] for pid, value in after.waited_ns.items() if pid in before.waited_ns]
    if max(waits, default=0) > max(_LEAST_WAIT_NS, _WAITED_SHARE * window_ns):
        yield BY_THE_HOST[0]
    if 1000 * _growth(before.pressure_us, after.pressure_us) > max(_LEAST_WAIT_NS, _PRESSED_SHARE * window_ns):
        yield BY_THE_HOST[1]
    if _growth(before.stolen_ticks, after.stolen_ticks) > 0:
        yield BY_THE_HOST[2]
    if _growth(before.throttled_us, after.throttled_us) > 0:
        yield BY_THE_HOST[3]


def _growth(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


class Watch:
    """Reads the device before and after every round, and keeps which rounds were disturbed."""

    def __init__(self, probe: DeviceProbe, workers: Collection[int] = ()) -> None:
        self._probe, self._workers = probe, tuple(workers)
        self._first = self._before = self._last = probe.glance(self._workers, counters=True)
        self._found: list[Disturbance] = []

    def begin(self) -> None:
        """A round is about to begin. What happened since the last one does not count."""
        self._before = self._probe.glance(self._workers)

    def end(self, number: int) -> None:
        """The round is over."""
        self._last = self._probe.glance(self._workers)
        reasons = disturbances(self._before, self._last)
        if reasons:
            self._found.append(Disturbance(number, reasons))

    def finish(self) -> None:
        """The last round is over: see what the device's counters say of the whole."""
        self._last = self._probe.glance(self._workers, counters=True)

    @property
    def slowed(self) -> tuple[str, ...]:
        """What lowered the device's clocks between the first look and :meth:`finish`."""
        first, last = self._first.slowed, self._last.slowed
        return tuple(name for name, value in last.items() if value > first.get(name, value))

    @property
    def disturbances(self) -> tuple[Disturbance, ...]:
        """Of the rounds so far, in their order."""
        return tuple(self._found)

    @property
    def energy_millijoules(self) -> int | None:
        """Drawn by the device from the beginning of the watch to :meth:`finish`."""
        first, last = self._first.energy_millijoules, self._last.energy_millijoules
        return None if first is None or last is None else last - first
