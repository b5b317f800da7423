"""Measures for how long a worker had its CPU core during a block of calls, by the system's own counters.

On a busy machine a block takes longer than the work in it. The worker waits for its core, and the judge waits for its
own before it notices the reply. The system counts these waits, and the time for which the worker ran
(``/proc/PID/schedstat``). A candidate cannot change these counters. They are used only if nothing else could have
worked for the candidate meanwhile. Its worker must have one thread when it is resumed and when it is paused again.
And no process or thread may start on the whole machine in between: the system's last PID is the same. Otherwise the
time is that of the judge's clock.

A worker that sleeps within a call does no work, but its caller waits. So sleep counts, less the time that the judge
takes to notice a reply and to pause the worker.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

_MOST_FILE_BYTES = 256
"""Bytes that are read of a file in /proc."""
_HANDLING_NS = 500_000
"""Most time that the judge takes to notice a reply and to pause the worker. Measured: 0.1 to 0.3 ms."""


class Counters(NamedTuple):
    """The system's counters at one moment."""

    worker_ran_ns: int
    worker_waited_ns: int
    judge_waited_ns: int
    last_pid: int
    """The PID that the newest process or thread of the machine was given."""


class CoreTime:
    """The core time of a worker's blocks. Where the counters are missing or not valid, it is the judge's time."""

    def __init__(self, pid: int) -> None:
        names = f"/proc/{pid}/task/{pid}/schedstat", _schedstat_of_this_thread(), "/proc/loadavg"
        self._files = [descriptor for name in names if (descriptor := _opened(name)) is not None]
        self._is_available = len(self._files) == len(names) and _last_pid_changes()
        self._before: Counters | None = None

    def begin(self, threads: int) -> None:
        """Read the counters before the worker is resumed. ``threads``: how many it has, all of them paused."""
        self._before = self._read() if threads == 1 else None

    def of_block(self, elapsed_ns: int, threads: int) -> int:
        """The core time of the block in nanoseconds; the worker is paused again. ``elapsed_ns``: the judge's time."""
        before, after = self._before, self._read() if threads == 1 else None
        if before is None or after is None or before.last_pid != after.last_pid:
            return elapsed_ns
        ran_ns = after.worker_ran_ns - before.worker_ran_ns
        if ran_ns <= 0:  # an emulated /proc
            return elapsed_ns
        waited_ns = after.worker_waited_ns - before.worker_waited_ns + after.judge_waited_ns - before.judge_waited_ns
        return min(elapsed_ns, max(ran_ns, elapsed_ns - waited_ns - _HANDLING_NS))

    def _read(self) -> Counters | None:
        if not self._is_available:
            return None
        with suppress(OSError, ValueError, IndexError):
            worker, judge, load = (os.pread(file, _MOST_FILE_BYTES, 0).split() for file in self._files)
            return Counters(int(worker[0]), int(worker[1]), int(judge[1]), int(load[4]))
        return None

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())
        self._is_available = False


@cache
def _last_pid_changes() -> bool:
    """Whether a new thread changes the last PID in /proc/loadavg. An emulated /proc may show a constant."""
    with suppress(OSError, IndexError):
        before = Path("/proc/loadavg").read_text().split()[4]
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return Path("/proc/loadavg").read_text().split()[4] != before
    return False


def _schedstat_of_this_thread() -> str:
    return f"/proc/self/task/{threading.get_native_id()}/schedstat"


def _opened(name: str) -> int | None:
    with suppress(OSError):
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    return None
