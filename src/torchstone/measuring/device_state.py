"""Reads the state of a device and its machine, and tells whether a round of timed blocks was disturbed.

A *state* is for the record: clocks, temperature, other processes. A *glance* is taken before and after a round. It
reads counters of the host that only grow, so that no short disturbance is missed. From the device it reads the reasons
that lower the clocks at that moment. The device's counters take too long to read, so they are read only once before and
once after all rounds.
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

_LEAST_WAITED_SHARE = 0.01
"""Share of a round for which a worker waited for a core, from which the round counts as disturbed."""
_LEAST_WAIT_NS = 50_000
"""Shorter waits do not count: a worker that is woken always waits some microseconds for a core."""
_LEAST_PRESSURE_SHARE = 0.1
"""The same share for any thread of the machine. It is larger because other cores are always in use."""

BY_THE_HOST = ("waited for a core", "machine overloaded", "core taken by the host", "core quota used up")
"""Disturbances that come from the host."""


class Glance(msgspec.Struct, frozen=True):
    """One reading of counters. Only differences of two readings have a meaning, see :func:`disturbances`."""

    taken_ns: int
    slowing: tuple[str, ...] = ()
    """Reasons that lower the device's clocks at this moment."""
    slowed: dict[str, int] = {}
    """How long each reason has lowered the device's clocks, in the driver's unit; empty unless requested."""
    energy_millijoules: int | None = None
    """Energy drawn by the device; None unless requested."""
    waited_ns: dict[int, int] = {}
    """How long each worker, by process id, was ready to run and had no core."""
    pressure_us: int | None = None
    """How long any thread of the machine was ready to run and had no core."""
    stolen_ticks: int | None = None
    """How long a virtual machine's host gave the cores to others, in 1/100 s."""
    throttled_us: int | None = None
    """How long the control group was throttled because its quota of the cores was used up."""


class DeviceProbe:
    """Reads the state of one device. Values that it does not report are None."""

    def __init__(
        self, device_type: str, uuid: str | None = None, cores: tuple[int, ...] = (), *, nvml: Any = None
    ) -> None:
        """``cores``: cores that workers are bound to, if any. ``nvml``: replaces the module pynvml, for tests."""
        self._gpu = NvmlDevice.open(uuid, nvml) if device_type == "cuda" else None
        self._processor = Processor(cores)
        # On CUDA only the launching thread affects times; a CUDA context starts a dozen other threads.
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
        """How many of these processes are neither this one nor its descendants; None if that cannot be known.

        A judge on this device is in the list. If it is not, the driver uses the process ids of another pid namespace,
        outside of this container.
        """
        if numbers and os.getpid() not in numbers:
            return None
        return sum(not self._processor.descends_from(number, os.getpid()) for number in numbers)

    def glance(self, workers: Collection[int] = (), *, counters: bool = False) -> Glance:
        """One reading. ``workers``: process ids of the parties.

        ``counters``: also read the device's counters, which takes milliseconds.
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
    """Names of the disturbances between two glances. Counters that one of them lacks are ignored."""
    return tuple(_reasons(before, after))


def _reasons(before: Glance, after: Glance) -> Iterator[str]:
    window_ns = after.taken_ns - before.taken_ns
    grown = [name for name, value in after.slowed.items() if value > before.slowed.get(name, value)]
    yield from dict.fromkeys([*grown, *before.slowing, *after.slowing])
    waits = [value - before.waited_ns[pid] for pid, value in after.waited_ns.items() if pid in before.waited_ns]
    if max(waits, default=0) > max(_LEAST_WAIT_NS, _LEAST_WAITED_SHARE * window_ns):
        yield BY_THE_HOST[0]
    if 1000 * _growth(before.pressure_us, after.pressure_us) > max(_LEAST_WAIT_NS, _LEAST_PRESSURE_SHARE * window_ns):
        yield BY_THE_HOST[1]
    if _growth(before.stolen_ticks, after.stolen_ticks) > 0:
        yield BY_THE_HOST[2]
    if _growth(before.throttled_us, after.throttled_us) > 0:
        yield BY_THE_HOST[3]


def _growth(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


class Watch:
    """Reads counters of host and device before and after every round of timed blocks, and stores disturbed rounds.

    Something else disturbed a round if a worker waited for a core, the host took cores away, or the device lowered its
    clocks, see :func:`disturbances`.
    """

    def __init__(self, probe: DeviceProbe, workers: Collection[int] = ()) -> None:
        self._probe, self._workers = probe, tuple(workers)
        self._first = self._before = self._last = probe.glance(self._workers, counters=True)
        self._found: list[Disturbance] = []

    def begin(self) -> None:
        """Called before a round. Disturbances since the last round do not count."""
        self._before = self._probe.glance(self._workers)

    def end(self, number: int) -> None:
        """Called after the round with this number."""
        self._last = self._probe.glance(self._workers)
        reasons = disturbances(self._before, self._last)
        if reasons:
            self._found.append(Disturbance(number, reasons))

    def finish(self) -> None:
        """Called after the last round: reads the device's counters again."""
        self._last = self._probe.glance(self._workers, counters=True)

    @property
    def slowed(self) -> tuple[str, ...]:
        """Reasons that lowered the device's clocks between the start of the watch and :meth:`finish`."""
        first, last = self._first.slowed, self._last.slowed
        return tuple(name for name, value in last.items() if value > first.get(name, value))

    @property
    def disturbances(self) -> tuple[Disturbance, ...]:
        """The disturbed rounds so far, in order."""
        return tuple(self._found)

    @property
    def energy_millijoules(self) -> int | None:
        """Energy drawn by the device between the start of the watch and :meth:`finish`."""
        first, last = self._first.energy_millijoules, self._last.energy_millijoules
        return None if first is None or last is None else last - first
