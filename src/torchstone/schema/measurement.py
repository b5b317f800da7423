"""A measurement: raw samples as they were taken. Statistics are derived elsewhere and can be recomputed."""

from __future__ import annotations

from typing import Literal

import msgspec

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


class DeviceState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the device was doing while it was measured. None: this device does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    load_average: float | None = None


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
