"""Waits until the workers' CPU cores are idle: a candidate may leave work to the system that outlives it.

The system frees some resources of a process slowly, by its own threads and interrupts, on the core where the process
ended. No list of processes shows this work, but it takes the core from every other program. So a thread of the judge
runs on that core and reads the clock again and again. If two readings lie further apart than a reading takes, other
work had the core. Its origin does not matter: another program slows the reference as well.

A core is slow while its hyperthread sibling is busy, so the sibling is observed too. Small virtual machines, which
often do not report their topology, are observed as a whole.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_LOOK_AT_ALL_CORES_NS = 25_000_000
"""Nanoseconds of a look at all cores, which divide it among them."""
_LEAST_LOOK_AT_CORE_NS = 5_000_000
"""Least nanoseconds of the look at one core."""
_GAP_NS = 1_000
"""Two readings of the clock that lie further apart mean other work on the core. On an idle core they lie a tenth of a
microsecond apart. An interrupt from another core, to flush an address or code, takes two or three microseconds."""
MOST_STOLEN = 0.05
"""Share of the time that other work may have of an idle core: little more than differences that say nothing about a
kernel. An idle core of a virtual machine loses about one percent, and now and then three."""
_FEW_CORES = 4
"""Machines with at most this many cores are observed as a whole."""
_QUIET_LOOKS = 3
"""Quiet looks in a row after which the cores count as idle."""
_MOST_WAITING_SECONDS = 3.0
"""Most time of waiting for idle cores, all waits together. Only a candidate that leaves longer work is affected."""
_PAUSE_SECONDS = 0.05
"""Pause before the next look at a busy core, so that its work ends sooner."""


class IdleCores:
    """Waits for some cores to be idle, within a time for all waits together. No cores at all are always idle."""

    def __init__(self, cores: Collection[int], patience_seconds: float = _MOST_WAITING_SECONDS) -> None:
        self._cores = with_siblings(cores)
        self._left_seconds = patience_seconds

    def wait_until_idle(self) -> bool:
        """Wait until the cores are idle in several looks in a row. False: the time for waiting is over."""
        began, looks = time.monotonic(), 0
        try:
            while looks < _QUIET_LOOKS:
                looks = looks + 1 if self.are_idle() else 0
                if not looks:
                    if time.monotonic() - began > self._left_seconds:
                        return False
                    time.sleep(_PAUSE_SECONDS)
            return True
        finally:
            self._left_seconds -= time.monotonic() - began

    def are_idle(self) -> bool:
        """Whether one look finds all cores idle. One after another: two threads of a process wait for each other."""
        look_ns = max(_LEAST_LOOK_AT_CORE_NS, _LOOK_AT_ALL_CORES_NS // max(1, len(self._cores)))
        return all(stolen_share(core, look_ns) <= MOST_STOLEN for core in self._cores)


def with_siblings(cores: Collection[int], root: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """The cores and their hyperthread siblings, as far as the system reports them and lets the judge run there."""
    all_cores = range(os.cpu_count() or 1)
    found = {*cores, *(all_cores if cores and len(all_cores) <= _FEW_CORES else ())}
    for core in cores:
        with suppress(OSError, ValueError):
            found |= _listed((root / f"cpu{core}/topology/thread_siblings_list").read_text())
    return sorted(core for core in found if core in cores or _can_run_on(core))


def _listed(text: str) -> set[int]:
    """Cores as the system lists them: ``0,8-9``."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {core for part in ends for core in range(int(part[0]), int(part[-1]) + 1)}


def _can_run_on(core: int) -> bool:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    os.sched_setaffinity(0, before)
    return True


def stolen_share(core: int, look_ns: int = _LOOK_AT_ALL_CORES_NS) -> float:
    """The share of the time for which other work had the core, while a thread of this process was to run on it."""
    found: list[float] = []

    def look() -> None:
        os.sched_setaffinity(0, {core})  # this thread alone
        found.append(_stolen_share(look_ns))

    thread = threading.Thread(target=look, name="quiet")
    thread.start()
    thread.join()
    return found[0]


def _stolen_share(look_ns: int) -> float:
    clock = time.perf_counter_ns
    began = last = clock()
    stolen, until = 0, began + look_ns
    while last < until:
        now = clock()
        if now - last > _GAP_NS:
            stolen += now - last
        last = now
    return stolen / (last - began)
