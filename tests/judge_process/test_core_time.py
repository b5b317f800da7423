"""The time for which a process had its core: right beside others, and only if nothing else can have worked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torchstone.judge_process.core_time import CoreTime, Counters

WORKS = """
import sys, time
for line in sys.stdin:
    end = time.thread_time_ns() + int(line)
    while time.thread_time_ns() < end:
        pass
    print("done", flush=True)
"""
WORK_NS = 3_000_000


@contextmanager
def worker(code: str = WORKS) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def block(process: subprocess.Popen[str], counted: CoreTime, text: str = f"{WORK_NS}\n") -> tuple[int, int]:
    """Elapsed time, and what counts of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    counted.begin(threads=1)
    began = time.perf_counter_ns()
    process.stdin.write(text)
    process.stdin.flush()
    process.stdout.readline()
    elapsed_ns = time.perf_counter_ns() - began
    os.kill(process.pid, signal.SIGSTOP)  # as the judge does: its counters stand still
    os.waitpid(process.pid, os.WUNTRACED)
    found = counted.of_block(elapsed_ns, threads=1)
    os.kill(process.pid, signal.SIGCONT)
    return elapsed_ns, found


def test_a_worker_beside_busy_loops_took_what_it_ran() -> None:
    core = {max(os.sched_getaffinity(0))}
    loop = "import os; [None for _ in iter(int, 1)]"
    with worker() as process, worker(loop) as one, worker(loop) as other:
        for each in (process, one, other):
            os.sched_setaffinity(each.pid, core)
        counted = CoreTime(process.pid)
        block(process, counted)
        found = [block(process, counted) for _ in range(30)]
        counted.close()
    # Whatever is made on this machine in between leaves a block to the judge's clock.
    known = [own for elapsed, own in found if own < elapsed]
    if not known:
        pytest.skip("processes were made on this machine all the time")
    assert all(0.95 * WORK_NS <= own <= 2 * WORK_NS for own in known)


class Told(CoreTime):
    """Counters as a test tells them."""

    def __init__(self, *told: Counters | None) -> None:
        self._told = list(told)
        self._before = None

    def _read(self) -> Counters | None:
        return self._told.pop(0)


BEFORE = Counters(0, 0, 0, 77)


@pytest.mark.parametrize(
    ("after", "own_ms"),
    [
        (Counters(2_000_000, 7_000_000, 0, 77), 2.5),  # 10 less 7, less what the judge takes
        (Counters(2_000_000, 5_000_000, 4_000_000, 77), 2.0),  # never less than it ran
        (Counters(2_000_000, 0, 0, 77), 9.5),  # it slept
        (Counters(2_000_000, 7_000_000, 0, 78), 10.0),  # something was made meanwhile
        (None, 10.0),
    ],
)
def test_what_counts_of_ten_milliseconds(after: Counters | None, own_ms: float) -> None:
    counted = Told(BEFORE, after)
    counted.begin(threads=1)
    assert counted.of_block(10_000_000, threads=1) == own_ms * 1e6


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (0, 1), (1, 0)])
def test_a_worker_of_several_threads_is_timed_by_the_judges_clock(before: int, after: int) -> None:
    counted = Told(BEFORE, Counters(1, 9_000_000, 0, 77))
    counted.begin(threads=before)
    assert counted.of_block(10_000_000, threads=after) == 10_000_000


def test_a_child_that_is_gone_again_shows_in_the_last_pid() -> None:
    counted = CoreTime(os.getpid())
    counted.begin(threads=1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert counted.of_block(10_000_000, threads=1) == 10_000_000
    counted.close()


def test_a_machine_that_does_not_tell_leaves_the_judges_clock() -> None:
    counted = CoreTime(2**22 - 1)
    counted.begin(threads=1)
    assert counted.of_block(123, threads=1) == 123
    counted.close()
    counted.close()
