"""Data classes for a device's ceilings (bandwidth, FLOP/s, least call time), and a file that keeps them for a day.

The file is in the user's cache folder. An invalid file, or one with a time in the future, counts as absent. No verdict
depends on ceilings: only the percentages in reports do.
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
"""Age in nanoseconds from which stored ceilings are not used: one day."""

Positive = Annotated[float, msgspec.Meta(gt=0)]


class MemoryCeiling(msgspec.Struct, frozen=True):
    """Bandwidth of repeated passes over a working set of this size."""

    working_set_bytes: Annotated[int, msgspec.Meta(gt=0)]
    read_bytes_per_second: Positive
    write_bytes_per_second: Positive
    copy_bytes_per_second: Positive
    """Bytes read plus bytes written."""
    update_bytes_per_second: Positive
    """Bytes read plus bytes written in place. Faster on a CPU, which need not read memory before overwriting it."""

    def seconds(self, read_bytes: int, written_bytes: int, updated_bytes: int) -> float:
        """Least time to move these bytes.

        ``updated_bytes`` are read and written in place. Of the rest, as much as possible counts as copied, and what is
        left as only read or only written.
        """
        pairs = min(read_bytes, written_bytes) - updated_bytes
        return (
            2 * updated_bytes / self.update_bytes_per_second
            + 2 * pairs / self.copy_bytes_per_second
            + (read_bytes - updated_bytes - pairs) / self.read_bytes_per_second
            + (written_bytes - updated_bytes - pairs) / self.write_bytes_per_second
        )

    def best_of_both(self, other: MemoryCeiling) -> MemoryCeiling:
        """The higher of each rate. ``other`` has the same working set and was measured at another time."""
        return MemoryCeiling(
            self.working_set_bytes,
            max(self.read_bytes_per_second, other.read_bytes_per_second),
            max(self.write_bytes_per_second, other.write_bytes_per_second),
            max(self.copy_bytes_per_second, other.copy_bytes_per_second),
            max(self.update_bytes_per_second, other.update_bytes_per_second),
        )


class Ceilings(msgspec.Struct, frozen=True):
    """The ceilings of one device."""

    measured_unix_ns: int
    latency_ns: Positive
    """The least time per call, of an operator on one number."""
    memory: Annotated[tuple[MemoryCeiling, ...], msgspec.Meta(min_length=1)]
    """One for each working set, in ascending size."""
    flops_per_second: dict[str, Positive] = {}
    """Rate of matrix products, by dtype."""

    def bytes_per_second(
        self, read_bytes: int, written_bytes: int, updated_bytes: int, working_set_bytes: int
    ) -> float:
        """Bandwidth for this mix of reading and writing on a working set of this size.

        It is the highest among the larger measured working sets and the largest of the others: a ceiling may be too
        high, but not too low.
        """
        reached = [item for item in self.memory if item.working_set_bytes > working_set_bytes]
        reached += [item for item in self.memory if item.working_set_bytes <= working_set_bytes][-1:]
        total = read_bytes + written_bytes
        if total == 0:
            return max(item.copy_bytes_per_second for item in reached)
        return max(total / item.seconds(read_bytes, written_bytes, updated_bytes) for item in reached)

    def best_of_both(self, other: Ceilings) -> Ceilings:
        """The better of each value: disturbances only make a device slower. ``other`` is of the same device."""
        earlier = {item.working_set_bytes: item for item in other.memory}
        rates = {name: max(rate, other.flops_per_second.get(name, 0.0)) for name, rate in self.flops_per_second.items()}
        return Ceilings(
            self.measured_unix_ns,
            min(self.latency_ns, other.latency_ns),
            tuple(item.best_of_both(earlier.get(item.working_set_bytes, item)) for item in self.memory),
            {**other.flops_per_second, **rates},
        )


class KeptCeilings:
    """A file of ceilings in a folder, named after all that they depend on. Without a folder nothing is stored."""

    def __init__(self, folder: Path | None, *depends_on: str | int | tuple[int, ...]) -> None:
        self._path = None if folder is None else folder / f"{content_key(*depends_on, _machine())}.json"

    def read(self) -> Ceilings | None:
        """The stored ceilings. None: there are none, or they are too old or not readable."""
        if self._path is None:
            return None
        try:
            found = decode(self._path.read_bytes(), Ceilings)
        except (OSError, msgspec.DecodeError):
            return None
        age_ns = time.time_ns() - found.measured_unix_ns
        return found if 0 <= age_ns <= LONGEST_AGE_NS else None

    def write(self, ceilings: Ceilings) -> None:
        """Replace the file in one step; with several writers the last one counts. Errors of the folder are ignored."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, encode(ceilings))


def _machine() -> tuple[str, ...]:
    """What identifies this machine: several machines may share a home folder."""
    return platform.node(), platform.machine(), platform.processor()
