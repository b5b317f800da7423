"""Functions for keepers: processes between a parent and a child that runs code, which kill all that the child started.

A keeper reports to the parent how the child ended. It adopts orphans, so it finds processes that the code started in
other sessions. The parent holds one end of a pipe, the leash. When that end closes, because the parent closes it or is
killed, the keeper kills all its descendants. Each kind of keeper has its own module (``zygote``,
``fork_server_process``, ``confined_process``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def in_child(body: Callable[[], object]) -> NoReturn:
    """Run the body of a forked process; it must never return into the code that forked."""
    try:
        body()
    except BaseException:  # noqa: BLE001 - this process must print any error and end here
        sys.excepthook(*sys.exc_info())
        os._exit(70)
    os._exit(0)


def watch_children() -> tuple[int, int]:
    """Make SIGCHLD write to a pipe, for `wait_for_end`. Returns both ends, which a forked child must close."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake_read, wake_write


def forget_children(*descriptors: int) -> None:
    """Reset SIGCHLD in a forked child, and close descriptors that only the keeper needs."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in descriptors:
        os.close(descriptor)


def wait_for_end(child: int, leash: int, wake_read: int) -> int | None:
    """Wait until the child ends, and return its wait status; None: the leash closed first. Reaps adopted orphans."""
    poll = select.poll()
    poll.register(leash, select.POLLIN | select.POLLHUP)
    poll.register(wake_read, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        with contextlib.suppress(BlockingIOError):
            os.read(wake_read, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    return wait_status
        if leash in ready:
            return None


def kill_descendants() -> None:
    """Kill all descendants without a pid namespace: kill children, adopted orphans included, until none is left."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
