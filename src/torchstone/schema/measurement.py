"""A measurement: raw samples as they were taken. Statistics are derived elsewhere and can be recomputed."""

from __future__ import annotations

from typing import Literal

import msgspec

Cache = Literal["cold", "warm"]
"""Whether the arguments of a call lie in the device's cache when it begins. On the CPU, cold is as cold as rotating
through more memory than is cached makes it."""

Way = Literal["called", "captured", "chained", "alone", "beforehand"]
"""How the calls of a block are made: each started on its own; started together as a graph of the device, so that
starting them is not in the time; or so, and the arguments of each made from the result of the one before. `alone`: as
those that decide, after the candidate's processes had ended. `beforehand`: called, before the candidate was loaded."""

Party = Literal["candidate", "reference", "shim"]
"""Who was called. `shim` is a candidate that returns a ready result: what calling and copying out costs."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One uninterrupted series of calls. The candidate's have fresh inputs, and every output was verified."""

    round: int
    party: Party
    calls: int
    elapsed_ns: int
    """By the judge's clock, from letting the worker go until it stood still again."""
    claimed_ns: int
    """By the worker's clock, which the candidate could have touched. A claim, never the result."""
    way: Way = "called"
    revealing_ns: int = 0
    """Of captured calls: how much of ``elapsed_ns`` the judge needed to write their arguments and to empty caches."""


FlopCount = Literal["formula", "pointwise", "none", "unknown"]
"""How arithmetic was counted: by a formula (matrix products, convolutions, attention), as one operation for each
element of a pointwise result (a lower guess), or not at all, since a pass over the memory takes longer. `unknown`: the
operator calculates more than that, and nobody has a formula, so there is no limit either."""


class SpeedOfLight(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the device allows for one call: work counted from the reference, and ceilings measured on this device."""

    read_bytes: int
    """That any kernel must read: each element of the arguments once."""
    written_bytes: int
    """That any kernel must write."""
    bytes_per_second: float
    """The best of this device for this share of reading and writing, on as much memory as a long block goes through."""
    latency_ns: float
    """The best time per call of an operator that does next to nothing."""
    flops: int = 0
    flops_counted: FlopCount = "none"
    flops_per_second: float | None = None
    """The best matrix product in `dtype`; None: not known for it."""
    dtype: str | None = None
    """Of the arithmetic."""
    measured_unix_ns: int = 0
    """When the ceilings were measured."""

    @property
    def min_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class DeviceState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the device was doing while it was measured. None: this device does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """At this moment. What happened between two moments is in `Measurement.disturbances`."""
    load_average: float | None = None
    cpu_mhz: int | None = None
    """Mean over the cores that workers are bound to, or over all."""
    processes: int | None = None
    """Programs that use the device, the judge and its workers included."""
    other_processes: int | None = None
    """Those that are neither. None: the driver's process numbers are not those that the judge sees."""


class Disturbance(msgspec.Struct, frozen=True):
    """Something besides the parties had a hand in a round. A note for readers: no round is left out because of it."""

    round: int
    reasons: tuple[str, ...]
    """Named in ``measuring/device.py``: ``power cap``, ``waited for a core`` and so on."""


class Measurement(msgspec.Struct, frozen=True):
    """Raw samples in nanoseconds and how they were taken."""

    method: str
    """``blocks-less-shim``: long blocks in random order, the shim's time taken off, per call."""
    blocks: tuple[Block, ...]
    began_unix_ns: int
    ended_unix_ns: int
    threads: int
    """CPU threads that each party was given."""
    distinct_inputs: int
    """Input sets that a long block rotates through."""
    bytes_per_call: int
    """Bytes of all inputs and outputs of one call."""
    before: DeviceState = DeviceState()
    after: DeviceState = DeviceState()
    speed_of_light: SpeedOfLight | None = None
    """None: the device's ceilings are not known."""
    uncaptured: str | None = None
    """Why calls were not captured, and whose; empty: this kind of device captures nothing. None: they were."""
    cache: Cache = "cold"
    disturbances: tuple[Disturbance, ...] = ()
    """Rounds that were disturbed, as far as the machine tells; those not named were not seen to be."""
    energy_millijoules: int | None = None
    """That the device drew while it was measured: all parties, the judge's own work and pauses together. Devices count
    in steps of 20 to 100 ms, so this is no energy per call. None: not told."""
    preparable_share: float = 0.0
    """Of the bytes that a call moves, those of results that are the same whatever the values: they can be written
    before the clock runs, and a speed counts only as far as that does not explain it."""
    differentiating_ns: float | None = None
    """What differentiating takes of every call of a gradient besides the work: making the graph and going through it.
    Seen by the judge, on an operator that does nothing. None: nothing is differentiated."""
    relaying_ns: float = 0.0
    """Per call, what it takes to copy results that lie otherwise than torch's to where torch's do: who reads them next
    pays for it, and a speed counts only as far as that does not explain it."""
    never_alone: str = ""
    """Why the reference could not be timed `alone` though a speed had to be held against that: it is not borne out.
    Empty: it could, or there was no such speed."""
