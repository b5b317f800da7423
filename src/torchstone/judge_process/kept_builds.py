"""Keeps the compiled files of candidates for their later workers, as bytes that the judge never reads.

An untrusted worker wrote them. So only workers of the candidate with the same key get them, in a memory file that
nobody can change. What they hold must not help the candidate:

- What was taken before the worker had met a value is handed on at once.
- What was taken after a call is handed on to later jobs only. Each job draws its own values and hidden variants. A job
  that is repeated because its worker was lost gets the same ones.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter, OrderedDict

import msgspec

_F_ADD_SEALS = 1033
_ALL_SEALS = 1 | 2 | 4 | 8
"""No more seals, no other size, no writing."""

ROOM_BYTES = 64 << 20
"""For what one candidate has built. An extension of torch in C++ takes 1 to 10 MB."""
_MOST_BYTES = 256 << 20
"""Of the judge's memory, for all candidates together; the ones that were used longest ago go first."""
_MOST_TIMES = 4
"""That files of one candidate are taken: each costs about as long as it takes to copy them."""
WORTH_SECONDS = 0.3
"""Of loading or of a first call. Importing a kernel that builds nothing takes less; a kernel of Triton takes longer."""


class KeptBuild(msgspec.Struct, frozen=True):
    """What one candidate has built."""

    descriptor: int
    """A memory file that cannot be changed."""
    size_bytes: int


class KeptBuilds:
    """By the key of the implementation."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, KeptBuild] = OrderedDict()
        self._for_later_jobs: dict[str, KeptBuild] = {}
        self._taken: Counter[str] = Counter()

    def begin_job(self) -> None:
        """From now on values are others than those that any worker has met."""
        later, self._for_later_jobs = self._for_later_jobs, {}
        for key, build in later.items():
            self._put(key, build)

    def of(self, key: str) -> KeptBuild | None:
        """What is to be handed to a worker of this candidate."""
        build = self._kept.get(key)
        if build is not None:
            self._kept.move_to_end(key)
        return build

    def wants(self, key: str, seconds: float) -> bool:
        """Whether files are worth taking after the worker was busy for so long with loading or a first call."""
        return seconds >= WORTH_SECONDS and self._taken[key] < _MOST_TIMES

    def take(self, key: str, source: int, size_bytes: int, *, knows_values: bool) -> None:
        """Copy so many bytes of a worker's memory file, which it can still write to."""
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
            self._put(key, build)

    def close(self) -> None:
        for build in (*self._kept.values(), *self._for_later_jobs.values()):
            self._drop(build)
        self._kept.clear()
        self._for_later_jobs.clear()

    def _put(self, key: str, build: KeptBuild) -> None:
        self._drop(self._kept.pop(key, None))
        self._kept[key] = build
        while sum(each.size_bytes for each in self._kept.values()) > self._most_bytes:
            self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, build: KeptBuild | None) -> None:
        if build is not None:
            os.close(build.descriptor)


def _sealed_copy(source: int, size_bytes: int) -> int | None:
    """None: there are fewer bytes. The system copies them: the judge never reads them."""
    made = os.memfd_create("torchstone-built", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        place = 0
        while place < size_bytes and (copied := os.sendfile(made, source, place, size_bytes - place)):
            place += copied
        fcntl.fcntl(made, _F_ADD_SEALS, _ALL_SEALS)
    except BaseException:
        os.close(made)
        raise
    if place == size_bytes:
        return made
    os.close(made)
    return None
