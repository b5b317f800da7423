"""Keeps the compiled files of candidates for their later workers, as bytes that the judge never reads.

An untrusted worker wrote them. So only workers of the candidate with the same key get them, in a sealed memory file.
They must not tell a later worker anything about the values of its job:

- Files that were taken before the worker was called are handed on at once.
- Files that were taken after a call are handed on to later jobs only. Each job draws its own values and hidden
  variants, but a job that is repeated because its worker was lost gets the same ones.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter, OrderedDict

import msgspec

_F_ADD_SEALS = 1033
_ALL_SEALS = 1 | 2 | 4 | 8
"""The file cannot be written, shrunk, enlarged, or given other seals."""

ROOM_BYTES = 64 << 20
"""Most bytes of one candidate's built files. An extension of torch in C++ takes 1 to 10 MB."""
_MOST_BYTES = 256 << 20
"""Most bytes of the files of all candidates, in the judge's memory. The least recently used are dropped first."""
_MOST_TAKES = 4
"""How often files of one candidate are taken at most. Each time costs about as long as copying them."""
WORTH_SECONDS = 0.3
"""Least time of a load or a first call after which files are taken. Importing a kernel that builds nothing takes less;
a Triton kernel takes longer."""


class KeptBuild(msgspec.Struct, frozen=True):
    """The built files of one candidate, packed."""

    descriptor: int
    """A sealed memory file."""
    size_bytes: int


class KeptBuilds:
    """The built files of candidates, by the key of the implementation."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, KeptBuild] = OrderedDict()
        self._for_later_jobs: dict[str, KeptBuild] = {}
        self._taken: Counter[str] = Counter()

    def begin_job(self) -> None:
        """Hand on the files of earlier jobs' calls from now on: the new job draws other values."""
        later, self._for_later_jobs = self._for_later_jobs, {}
        for key, build in later.items():
            self._keep(key, build)

    def of(self, key: str) -> KeptBuild | None:
        """The files to hand to a new worker of this candidate; None: there are none."""
        build = self._kept.get(key)
        if build is not None:
            self._kept.move_to_end(key)
        return build

    def wants(self, key: str, seconds: float) -> bool:
        """Whether to take files after the worker was busy with loading or a first call for this long."""
        return seconds >= WORTH_SECONDS and self._taken[key] < _MOST_TAKES

    def take(self, key: str, source: int, size_bytes: int, *, knows_values: bool) -> None:
        """Copy this many bytes of a worker's memory file, to which it can still write.

        ``knows_values``: the files were taken after a call, so they are for later jobs only.
        """
        self._taken[key] += 1
        if not 0 < size_bytes <= ROOM_BYTES:
            return
        copy = _sealed_copy(source, size_bytes)
        if copy is None:
            return
        build = KeptBuild(copy, size_bytes)
        if knows_values:
            self._drop(self._for_later_jobs.pop(key, None))
            self._for_later_jobs[key] = build
        else:
            self._keep(key, build)

    def close(self) -> None:
        for build in (*self._kept.values(), *self._for_later_jobs.values()):
            self._drop(build)
        self._kept.clear()
        self._for_later_jobs.clear()

    def _keep(self, key: str, build: KeptBuild) -> None:
        self._drop(self._kept.pop(key, None))
        self._kept[key] = build
        while sum(each.size_bytes for each in self._kept.values()) > self._most_bytes:
            self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, build: KeptBuild | None) -> None:
        if build is not None:
            os.close(build.descriptor)


def _sealed_copy(source: int, size_bytes: int) -> int | None:
    """A sealed memory file with these bytes; None: there are fewer. The system copies them without the judge."""
    copy = os.memfd_create("torchstone-built", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        place = 0
        while place < size_bytes and (copied := os.sendfile(copy, source, place, size_bytes - place)):
            place += copied
        fcntl.fcntl(copy, _F_ADD_SEALS, _ALL_SEALS)
    except BaseException:
        os.close(copy)
        raise
    if place == size_bytes:
        return copy
    os.close(copy)
    return None
