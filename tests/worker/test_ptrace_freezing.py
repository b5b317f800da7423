"""A frozen worker stands still, whatever it has prepared to be woken by."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchstone.errors import InfrastructureError
from torchstone.isolation import linux_calls
from torchstone.protocol.commands import Release
from torchstone.supervisor import ptrace_freezing
from torchstone.supervisor.ptrace_freezing import Alarm, descendants
from torchstone.supervisor.worker_failures import OverLimitError, WorkerEndedError
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerPool
from worker.conftest import load

TICKING = """
import threading, time
def tick():
    while True:
        print(".", end="", flush=True)
        time.sleep(0.002)
threading.Thread(target=tick, daemon=True).start()
{more}
def kernel(x): return x
"""
QUIET = TICKING.replace("threading.Thread(target=tick, daemon=True).start()", "")
FORKED = """
import os
if os.fork() == 0:
    os.setsid()
    tick()
"""
ZOMBIE = """
import os
if os.fork() == 0:
    os._exit(0)
time.sleep(0.05)
"""
WOKEN = """
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
"""


def ticks(worker: Worker, seconds: float) -> int:
    """How much it prints in that time."""
    worker.clear_log()
    time.sleep(seconds)
    return len(worker.log_tail)


@pytest.mark.parametrize("more", ["", FORKED, ZOMBIE, WOKEN], ids=["threads", "forked", "zombie", "timers"])
def test_it_stands_still_until_it_is_let_go(worker: Worker, more: str) -> None:
    load(worker, TICKING.format(more=more))
    assert ticks(worker, 0.2) > 0
    worker.freeze()
    assert ticks(worker, 0.2) == 0
    worker.thaw()
    assert ticks(worker, 0.3) > 0


def test_no_signal_lets_it_go(worker: Worker) -> None:
    load(worker, TICKING.format(more=""))
    worker.freeze()
    worker.clear_log()
    for number in (signal.SIGCONT, signal.SIGUSR1, signal.SIGCONT):
        os.kill(worker.pid, number)
    assert ticks(worker, 0.2) == 0


def test_freezing_is_quick_and_can_be_repeated(worker: Worker) -> None:
    load(worker, TICKING.format(more=""))
    began = time.monotonic()
    for _ in range(200):
        worker.freeze()
        worker.freeze()
        worker.thaw()
    assert time.monotonic() - began < 10
    assert ticks(worker, 0.3) > 0


def test_one_that_is_killed_while_it_stands_still_is_noticed(worker: Worker) -> None:
    load(worker, TICKING.format(more=""))
    worker.freeze()
    os.kill(worker.pid, signal.SIGKILL)
    began = time.monotonic()
    worker.kill()
    assert time.monotonic() - began < 4


TAKES_OVER = """
import os
def is_held(thread):
    with open(f"/proc/self/task/{thread}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "t"
def replace():
    while not is_held(os.getpid()):
        pass
    os.execv("/bin/sh", ["sh", "-c", "while :; do printf .; done"])
if os.fork() == 0:
    threading.Thread(target=replace).start()
    time.sleep(1000)
"""
HOPS_WHEN_TOLD = """
import ctypes, os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
adopt_orphans = lambda: ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
def hop(*_):
    if os.fork():
        os._exit(0)
    tick()
if os.fork() == 0:
    adopt_orphans()
    if os.fork():
        time.sleep(1000)
    if os.fork():
        time.sleep(1000)
    signal.signal(signal.SIGUSR1, hop)
    while True:
        time.sleep(1000)
"""
HOPS = """
import ctypes, os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    for _ in range(8):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        if os.fork():
            time.sleep(1000)
    while True:
        print(".", end="", flush=True)
        if os.fork():
            os._exit(0)
"""


_LONG_SECONDS = 20.0
"""For a process on a busy machine to call execve."""


@pytest.mark.slow  # waits for a moment that a busy machine may not give
def test_what_takes_over_the_number_of_a_held_thread_is_held_too(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that started after the judge had listed its process calls execve once the first one is held."""
    load(worker, TICKING.format(more=TAKES_OVER))
    (child,) = set(descendants(worker.pid)) - {worker.pid}
    threads = ptrace_freezing.threads_of
    wait_until(lambda: len(threads(child)) == 2)  # one that is held before it has started the other waits for ever
    listings = 0

    def late(pid: int) -> list[int]:
        nonlocal listings
        if pid != child:
            return threads(pid)
        listings += 1
        if listings == 1:
            return [child]
        if listings == 2:
            wait_until(lambda: Path(f"/proc/{child}/comm").read_text() == "sh\n", _LONG_SECONDS)
        return threads(pid)

    monkeypatch.setattr(ptrace_freezing, "threads_of", late)
    # The wait for execve is part of holding here, and beside other work it may be longer than that is given.
    monkeypatch.setattr(ptrace_freezing, "_FREEZE_SECONDS", 2 * _LONG_SECONDS)
    monkeypatch.setattr(ptrace_freezing, "_ALARM_SECONDS", 3 * _LONG_SECONDS)
    worker.freeze()
    assert listings > 2
    assert ticks(worker, 0.1) == 0


@pytest.mark.parametrize("moment", range(10))
def test_what_hops_from_parent_to_parent_is_met(worker: Worker, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the judge's walk has missed forks and ends, and its child goes to an ancestor, at any moment."""
    load(worker, QUIET.format(more=HOPS_WHEN_TOLD))
    wait_until(lambda: len(descendants(worker.pid)) == 4)
    hopper = descendants(worker.pid)[-1]
    walk, children_of = ptrace_freezing._walk, ptrace_freezing._children_of
    walks = reads = 0

    def blind_at_first(pid: int) -> dict[int, list[int]]:
        nonlocal walks
        walks += 1
        return {number: threads for number, threads in walk(pid).items() if number != hopper or walks > 1}

    def reads_while_it_hops(pid: int, thread: int) -> list[int]:
        nonlocal reads
        if walks == 1 and reads >= 0:
            if reads == moment + 5:  # the walk has taken five
                os.kill(hopper, signal.SIGUSR1)
                wait_until(lambda: not Path(f"/proc/{hopper}").exists())
                reads = -1_000
            reads += 1
        return children_of(pid, thread)

    monkeypatch.setattr(ptrace_freezing, "_walk", blind_at_first)
    monkeypatch.setattr(ptrace_freezing, "_children_of", reads_while_it_hops)
    worker.freeze()
    assert ticks(worker, 0.1) == 0  # on a busy machine one walk may be enough: it hopped before its turn


def wait_until(is_so: Callable[[], bool], seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until


def test_nothing_escapes_that_hops_all_the_time(pool: WorkerPool) -> None:
    for _ in range(3):
        with taken(pool) as worker:
            load(worker, TICKING.format(more=HOPS))
            time.sleep(0.05)
            with contextlib.suppress(OverLimitError):  # not to be stopped is to be ended
                worker.freeze()
                assert ticks(worker, 0.1) == 0


def test_one_that_is_killed_is_told_from_one_that_cannot_be_read(worker: Worker) -> None:
    load(worker, TICKING.format(more=""))
    worker.check_alive()
    worker.freeze()
    worker.check_alive()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerEndedError):
        worker.check_alive()


def test_one_that_is_killed_while_it_is_being_stopped_is_reported(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thread is not reported dead before the others have been taken note of."""
    load(worker, TICKING.format(more=""))
    interrupt = linux_calls.interrupt

    def kill_first(thread: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        interrupt(thread)

    monkeypatch.setattr(linux_calls, "interrupt", kill_first)
    worker.freeze()
    worker.thaw()
    began = time.monotonic()
    with pytest.raises(WorkerEndedError):
        worker.ask(Release("token"), began + 20)
    assert time.monotonic() - began < 5


def test_one_of_its_processes_that_dies_while_it_stands_still_ends_it(worker: Worker) -> None:
    """The kernel clears up after it while somebody else is timed."""
    load(worker, TICKING.format(more=FORKED))
    worker.freeze()
    (child,) = set(descendants(worker.pid)) - {worker.pid}
    os.kill(child, signal.SIGKILL)
    with pytest.raises(OverLimitError, match="died while the worker was frozen"):
        worker.thaw()


def test_a_worker_that_cannot_be_traced_is_the_machines_fault_only_before_a_candidate_is_loaded(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: int) -> None:
        raise PermissionError(1, "PTRACE_SEIZE: Operation not permitted")

    with taken(pool) as worker:
        load(worker, TICKING.format(more=""))
        monkeypatch.setattr("torchstone.supervisor.ptrace_freezing._FREEZE_SECONDS", 0.2)
        monkeypatch.setattr(linux_calls, "trace", refuse)
        with pytest.raises(OverLimitError, match="do not stop"):
            worker.freeze()
        with pytest.raises(InfrastructureError, match="SYS_PTRACE"), taken(pool):
            pass


def test_a_freeze_that_blocks_in_the_kernel_ends_with_the_worker(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a trace does of a process in execve, which waits for a thread that we hold."""
    load(worker, TICKING.format(more=""))
    descriptor = os.pidfd_open(worker.pid)
    trace = linux_calls.trace

    def block(thread: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(worker.pid, 0)
                time.sleep(0.01)
        trace(thread)

    monkeypatch.setattr("torchstone.supervisor.ptrace_freezing._ALARM_SECONDS", 0.3)
    monkeypatch.setattr(linux_calls, "trace", block)
    began = time.monotonic()
    with pytest.raises(OverLimitError, match="do not stop"):
        worker.freeze()
    assert time.monotonic() - began < 3
    os.close(descriptor)


def test_an_alarm_rings_unless_it_is_called_off() -> None:
    rung = threading.Event()
    alarm = Alarm(rung.set)
    alarm.set(0.05)
    alarm.call_off()
    assert not rung.wait(0.2)
    alarm.set(0.05)
    assert rung.wait(2)
    assert alarm.rang
    alarm.close()
    quiet = Alarm(rung.clear)
    quiet.set(60)
    quiet.close()
    assert rung.is_set()


@contextlib.contextmanager
def taken(pool: WorkerPool) -> Iterator[Worker]:
    worker = pool.take()
    try:
        yield worker
    finally:
        worker.kill()
