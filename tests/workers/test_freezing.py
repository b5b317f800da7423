"""A frozen worker stands still, whatever it has prepared to be woken by."""

from __future__ import annotations

import os
import signal
import time

import pytest

from torchstone.workers.handle import Worker
from workers.conftest import load

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
