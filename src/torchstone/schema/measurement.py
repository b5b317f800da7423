"""A measurement: raw timings of blocks of calls, and their circumstances. Statistics are computed elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec

Baseline = Literal["eager", "compile"]
"""How the reference (torch's operator or the problem's model) is timed: in eager mode, or under torch.compile."""
Cache = Literal["cold", "warm"]
"""Whether the arguments of a call lie in the device's cache when it begins. On the CPU, `cold` rotates through more
memory than the cache holds."""

Way = Literal["called", "captured", "chained", "alone", "beforehand", "repeated"]
"""How the calls of a block are made.

- `called`: each launched on its own.
- `captured`: launched together as a CUDA graph, so that launches are not timed.
- `chained`: the arguments of each call are made from the result of the last.
- `alone`: the reference, called as in the deciding blocks, after the candidate's processes had ended.
- `beforehand`: as `called`, before the candidate was loaded.
- `repeated`: the reference repeats one call, for its time on warm caches."""

Party = Literal["candidate", "reference", "shim"]
"""The party that was called. `shim` returns a ready result: its time is the cost of calling."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One uninterrupted series of calls. The candidate's calls have new inputs, and every result was compared."""

    round: int
    party: Party
    calls: int
    elapsed_ns: int
    """Time by the judge's clock, from resuming the worker until it was frozen again. For short blocks, without the time
    in which worker and judge waited for their cores and nothing else can have worked for the candidate."""
    claimed_ns: int
    """Time by the worker's clock, which the candidate could have changed."""
    way: Way = "called"
    revealing_ns: int = 0
    """Captured calls: the part of ``elapsed_ns`` in which the judge wrote arguments and emptied caches."""


FlopCount = Literal["formula", "pointwise", "none", "unknown"]
"""How arithmetic was counted.

- `formula`: matrix products, convolutions, attention.
- `pointwise`: one operation for each element, a lower bound.
- `none`: not counted, because a pass over the memory takes longer.
- `unknown`: there is no formula, so there is no limit either."""


class SpeedOfLight(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limit of the device for one call: work counted from the reference, and ceilings measured on this device."""

    read_bytes: int
    """Bytes that any kernel must read: each element of the arguments once."""
    written_bytes: int
    """Bytes that any kernel must write."""
    bytes_per_second: float
    """Best bandwidth of this device for this share of reads and writes, over as much memory as a long block uses."""
    latency_ns: float
    """Best time per call of an operator that does almost nothing."""
    flops: int = 0
    flops_counted: FlopCount = "none"
    flops_per_second: float | None = None
    """Best rate of a matrix product in `dtype`; None: unknown for it."""
    dtype: str | None = None
    """dtype of the arithmetic."""
    measured_unix_ns: int = 0
    """When the ceilings were measured."""

    @property
    def min_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class DeviceState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of the device during a measurement. None: this device does not report it."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Reasons at this moment. `Measurement.disturbances` has events between two moments."""
    load_average: float | None = None
    cpu_mhz: int | None = None
    """Mean clock of the cores that workers are bound to, or of all cores."""
    processes: int | None = None
    """Number of processes that use the device, including the judge and its workers."""
    other_processes: int | None = None
    """Number of those that are neither judge nor workers. None: the driver's pids are not those that the judge sees."""


class Disturbance(msgspec.Struct, frozen=True):
    """A round of timed blocks that something disturbed, such as a power cap. The round still counts."""

    round: int
    reasons: tuple[str, ...]
    """Reasons from ``measuring/device_state.py``: ``power cap``, ``waited for a core`` and so on."""


class Measurement(msgspec.Struct, frozen=True):
    """Raw samples in nanoseconds and how they were taken."""

    method: str
    """``blocks-less-shim``: long blocks in random order, minus the shim's time, per call. ``short-blocks``, on the CPU:
    pairs of short blocks, of which the lowest third of each party's counts."""
    blocks: tuple[Block, ...]
    began_unix_ns: int
    ended_unix_ns: int
    threads: int
    """Number of CPU threads of each party."""
    distinct_inputs: int
    """Number of input sets that a long block uses in turn."""
    bytes_per_call: int
    """Bytes of all inputs and outputs of one call."""
    before: DeviceState = DeviceState()
    after: DeviceState = DeviceState()
    speed_of_light: SpeedOfLight | None = None
    """None: the device's ceilings are not known."""
    uncaptured: str | None = None
    """Why calls were not captured, and which party's; empty: this kind of device cannot capture. None: they were."""
    cache: Cache = "cold"
    baseline: Baseline = "eager"
    """What was timed as the party `reference`."""
    disturbances: tuple[Disturbance, ...] = ()
    """Rounds that were disturbed, as far as the machine reports it."""
    energy_millijoules: int | None = None
    """Energy of the device over the whole measurement: all parties, the judge's own work and pauses. Devices update it
    every 20 to 100 ms, so this is not an energy per call. None: unknown."""
    preparable_share: float = 0.0
    """Share of the bytes of a call that are constant parts of results. They can be written before the timing starts, so
    a speed counts only as far as it exceeds them."""
    differentiating_ns: float | None = None
    """Time for autograd's graph in every call of a gradient, measured by the judge on an operator that does nothing.
    None: nothing is differentiated."""
    relaying_ns: float = 0.0
    """Time per call to copy results into the memory order of torch's results. The next operator would need it, so a
    speed counts only as far as it exceeds this time."""
    never_alone: str = ""
    """Why the reference could not be timed `alone` although a speed needed it. The speed is then unresolved. Empty: it
    was timed, or no speed needed it."""
