"""Messages between a sweep and the process that measures its points. Imports no torch."""

from __future__ import annotations

import msgspec

from torchstone.schema.sweep import SweepPoint, SweepRecord


class Open(msgspec.Struct, frozen=True, tag=True):
    """Request: open the device and report what can be measured."""

    device_type: str
    environment: dict[str, str]
    """Variables that choose the device."""
    folder: str
    """The working directory."""
    files: tuple[str, ...]
    """Files that define operations."""
    implementations: tuple[str, ...]
    threads: int
    seed: int
    last_step_file: str
    """File in which the process notes the implementation that it calls next, in case the call kills it."""
    ceilings_folder: str | None


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Request: check and time these implementations at this point."""

    point: SweepPoint
    implementations: tuple[str, ...]


Request = Open | Measure


class OwnOperation(msgspec.Struct, frozen=True):
    """What a user's file defines."""

    file: str
    name: str
    implementations: tuple[str, ...]


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The device is open."""

    device: str
    """Name of the device."""
    missing: dict[str, str] = {}
    """Implementations that cannot be used here, with the reason."""
    lacking: dict[str, dict[str, str]] = {}
    """Operation -> implementation that does not have it -> reason."""
    own: tuple[OwnOperation, ...] = ()


class MeasurementReply(msgspec.Struct, frozen=True, tag=True):
    """The record of a measured point."""

    record: SweepRecord


class Broken(msgspec.Struct, frozen=True, tag=True):
    """An implementation left the device unusable for this process: an illegal access, for instance."""

    implementation: str
    """Empty: it is not known which."""
    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request cannot be carried out."""

    message: str
    """One line."""
    is_usage: bool = False
    """Whether the user made an error, not the machine."""


Reply = Opened | MeasurementReply | Broken | Failed
