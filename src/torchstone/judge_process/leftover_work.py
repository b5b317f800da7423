"""Waits until the workers' CPU cores are idle: a candidate may leave work to the system that outlives it.

The system frees some things of a process slowly, by threads and interrupts of its own, on the core where the process
ended. No list of processes shows this work. But it takes the core from every other program there. So a thread of the
judge runs on that core and reads the clock again and again. A step of the clock that is longer than a reading takes
means that other work had the core. Its origin does not matter: a neighbour's program slows the reference just as
well.

A core that shares its arithmetic with another (hyperthreads) is slow while the other is busy, so the other is
observed too. Small virtual machines, which often do not report their topology, are observed as a whole.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_LOOK_NS = 25_000_000
"""At all cores together; where there are many, each is looked at for no less than the shortest."""
_SHORTEST_LOOK_NS = 5_000_000
_GAP_NS = 1_000
"""Between two readings of the clock, on a core that nobody else has, lies a tenth of a microsecond. An interrupt from
another core, to forget an address or a piece of code, takes two or three."""
MOST_STOLEN = 0.05
"""Little more than differences that say nothing about a kernel. An idle core of a virtual machine loses about one
percent, and now and then three."""
_FEW_CORES = 4
_LOOKS = 3
"""In a row, before a core is believed to be quiet."""
_PATIENCE_SECONDS = 3.0
"""What takes longer to be freed than this costs nobody but the candidate that has left it."""
_PAUSE_SECONDS = 0.05
"""Before the next look at a core that was not quiet: what is left to be done there is done sooner without us."""


class IdleCores:
    """Some cores, and how long the judge may still wait for them to be idle. An empty set of cores always is."""

    def __init__(self, cores: Collection[int], patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._cores = with_siblings(cores)
        self._left_seconds = patience_seconds

    def comes(self) -> bool:
        """Wait until nothing else has run on any of the cores for a while. False: the time for waiting is over."""
        began, looks = time.monotonic(), 0
        try:
            while looks < _LOOKS:
                looks = looks + 1 if self.is_there() else 0
                if not looks:
                    if time.monotonic() - began > self._left_seconds:
                        return False
                    time.sleep(_PAUSE_SECONDS)
            return True
        finally:
            self._left_seconds -= time.monotonic() - began

    def is_there(self) -> bool:
        """One look at each of the cores, one after another: two threads of this process would wait for each other."""
        look_ns = max(_SHORTEST_LOOK_NS, _LOOK_NS // max(1, len(self._cores)))
        return all(stolen_share(core, look_ns) <= MOST_STOLEN for core in self._cores)


def with_siblings(cores: Collection[int], root: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """The cores and those that share their arithmetic, as far as the system tells, and lets us go there."""
    everywhere = range(os.cpu_count() or 1)
    found = {*cores, *(everywhere if cores and len(everywhere) <= _FEW_CORES else ())}
    for core in cores:
        with suppress(OSError, ValueError):
            found |= _listed((root / f"cpu{core}/topology/thread_siblings_list").read_text())
    return sorted(core for core in found if core in cores or _may_go_to(core))


def _listed(text: str) -> set[int]:
    """Cores as the system lists them: ``0,8-9``."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {core for part in ends for core in range(int(part[0]), int(part[-1]) + 1)}


def _may_go_to(core: int) -> bool:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    os.sched_setaffinity(0, before)
    return True


def stolen_share(core: int, look_ns: int = _LOOK_NS) -> float:
    """How much of the time for which a thread of this process wanted to run on the core somebody else had."""
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
