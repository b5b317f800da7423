"""Holds a device's measured best (bandwidth, FLOP/s, least call time), and keeps it on disk for a day.

The folder is the user's cache. A file that is torn, edited, of another version or from the future counts as absent. No
verdict depends on it: only the percentages of reports do.
"""

from __future__ import annotations

import contextlib
import platform
import time
from pathlib import Path
from typing import Annotated

import msgspec

from torchstone.atomic_files import write_atomically
from torchstone.schema import content_key, decode, encode

LONGEST_AGE_NS = 24 * 3600 * 10**9

Positive = Annotated[float, msgspec.Meta(gt=0)]


class MemoryCeiling(msgspec.Struct, frozen=True):
    """Bandwidth when going through this much memory again and again."""

    working_set_bytes: Annotated[int, msgspec.Meta(gt=0)]
    read_bytes_per_second: Positive
    write_bytes_per_second: Positive
    copy_bytes_per_second: Positive
    """Bytes read plus bytes written."""
    update_bytes_per_second: Positive
    """The same in place, which is faster on a CPU: nothing is fetched only to be overwritten."""

    def seconds(self, read_bytes: int, written_bytes: int, updated_bytes: int) -> float:
        """What is read and written in place, then as much as possible copied, the rest only read or only written."""
        pairs = min(read_bytes, written_bytes) - updated_bytes
        return (
            2 * updated_bytes / self.update_bytes_per_second
            + 2 * pairs / self.copy_bytes_per_second
            + (read_bytes - updated_bytes - pairs) / self.read_bytes_per_second
            + (written_bytes - updated_bytes - pairs) / self.write_bytes_per_second
        )

    def best_of_both(self, other: MemoryCeiling) -> MemoryCeiling:
        """Of the same working set, measured at another time."""
        return MemoryCeiling(
            self.working_set_bytes,
            max(self.read_bytes_per_second, other.read_bytes_per_second),
            max(self.write_bytes_per_second, other.write_bytes_per_second),
            max(self.copy_bytes_per_second, other.copy_bytes_per_second),
            max(self.update_bytes_per_second, other.update_bytes_per_second),
        )


class Ceilings(msgspec.Struct, frozen=True):
    """The best that was measured on one device."""

    measured_unix_ns: int
    latency_ns: Positive
    """The least time per call of an operator that does next to nothing."""
    memory: Annotated[tuple[MemoryCeiling, ...], msgspec.Meta(min_length=1)]
    """From small working sets to large ones."""
    flops_per_second: dict[str, Positive] = {}
    """By dtype, of matrix products."""

    def bytes_per_second(
        self, read_bytes: int, written_bytes: int, updated_bytes: int, working_set_bytes: int
    ) -> float:
        """For this share of reading and writing on a working set of this size.

        The best of the largest measured one that is not larger, and of those above: a ceiling had better be too high.
        """
        reached = [item for item in self.memory if item.working_set_bytes > working_set_bytes]
        reached += [item for item in self.memory if item.working_set_bytes <= working_set_bytes][-1:]
        total = read_bytes + written_bytes
        if total == 0:
            return max(item.copy_bytes_per_second for item in reached)
        return max(total / item.seconds(read_bytes, written_bytes, updated_bytes) for item in reached)

    def best_of_both(self, other: Ceilings) -> Ceilings:
        """Of the same device, measured at another time: whatever disturbs makes it slower."""
        earlier = {item.working_set_bytes: item for item in other.memory}
        rates = {name: max(rate, other.flops_per_second.get(name, 0.0)) for name, rate in self.flops_per_second.items()}
        return Ceilings(
            self.measured_unix_ns,
            min(self.latency_ns, other.latency_ns),
            tuple(item.best_of_both(earlier.get(item.working_set_bytes, item)) for item in self.memory),
            {**other.flops_per_second, **rates},
        )


class KeptCeilings:
    """One file in a folder, named by all that ceilings depend on. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, *depends_on: str | int | tuple[int, ...]) -> None:
        self._path = None if folder is None else folder / f"{content_key(*depends_on, _machine())}.json"

    def read(self) -> Ceilings | None:
        """None: nothing there, too old, or not readable."""
        if self._path is None:
            return None
        try:
            found = decode(self._path.read_bytes(), Ceilings)
        except (OSError, msgspec.DecodeError):
            return None
        age_ns = time.time_ns() - found.measured_unix_ns
        return found if 0 <= age_ns <= LONGEST_AGE_NS else None

    def write(self, ceilings: Ceilings) -> None:
        """Replace the file in one step: of several writers the last one stays. A folder that cannot be used is none."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, encode(ceilings))


def _machine() -> tuple[str, ...]:
    """A home folder may be shared by many machines."""
    return platform.node(), platform.machine(), platform.processor()
