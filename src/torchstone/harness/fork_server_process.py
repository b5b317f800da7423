"""The fork server's own process: imports torch once, then forks a supervised benchmark process for each request.

The supervisor is the keeper, the parent of the benchmark process. It is forked too, reports how that process ended, and
kills everything that it started.

``python -m torchstone.harness.fork_server_process REQUESTS_DESCRIPTOR cpu|cuda SESSION [profiles]``; a session is
``module:Class``, a class with the type of its requests, ``request_type``, and a method ``handle`` that answers each.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import sys
import warnings

from torchstone.harness.fork_server import DETERMINISTIC
from torchstone.isolation import linux_calls
from torchstone.processes import receive, send
from torchstone.processes.child_process import STATUS
from torchstone.processes.keeper import forget_children, in_child, kill_descendants, wait_for_end, watch_children

_DESCRIPTORS = 5
"""Descriptors sent with every request: requests, replies, log, status, leash, in this order."""
_FIRST_PROTOCOL_DESCRIPTOR = 200
"""Least number of the protocol's descriptors. A benchmark is unlikely to close or write to such numbers by mistake."""


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    # By default, malloc returns memory to the system depending on where its heap ends. The same benchmark then takes
    # half as long again in one process as in another, for as long as both live.
    linux_calls.keep_freed_memory()
    _import_all(sys.argv[2], sys.argv[3], profiles="profiles" in sys.argv[4:])
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    while True:
        kind, descriptors, _, _ = socket.recv_fds(requests, 16, _DESCRIPTORS)
        if len(descriptors) < _DESCRIPTORS:  # the caller has closed the socket
            requests.close()
            return
        if kind == DETERMINISTIC:  # torch imports it to set the flag, which takes seconds: once, here
            importlib.import_module("torch._inductor.config")
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; the only ones here are BLAS's, and it handles forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            requests.close()
            in_child(functools.partial(_run_keeper, descriptors, sys.argv[3]))
        for descriptor in descriptors:
            os.close(descriptor)


def _import_all(device_type: str, session: str, profiles: bool) -> None:
    importlib.import_module(session.partition(":")[0])

    if profiles:
        with contextlib.suppress(ImportError):
            import torch._inductor.config  # noqa: F401 - torch's profiler imports it, two seconds in each process
    if device_type == "cpu":
        return

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401


def _run_keeper(descriptors: list[int], session: str) -> None:
    """Run the keeper: fork the side, wait until it ends or the caller closes the leash, then kill all descendants."""
    requests, replies, log, status, leash = descriptors
    os.setsid()
    wake_read, wake_write = watch_children()
    linux_calls.adopt_orphans()
    os.write(status, STATUS.pack(os.getpid()))
    side = os.fork()
    if side == 0:
        forget_children(status, leash, wake_read, wake_write)
        in_child(functools.partial(_run_side, requests, replies, log, session))
    for descriptor in (requests, replies, log):
        os.close(descriptor)
    wait_status = wait_for_end(side, leash, wake_read)
    if wait_status is not None:
        with contextlib.suppress(OSError):
            os.write(status, STATUS.pack(wait_status))
    kill_descendants()


def _run_side(requests: int, replies: int, log: int, name: str) -> None:
    linux_calls.die_with_parent(signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests, replies = _moved_to_high_number(requests), _moved_to_high_number(replies)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # in order with what goes to fd 1 directly
    module, _, attribute = name.partition(":")
    session = getattr(importlib.import_module(module), attribute)()
    with os.fdopen(requests, "rb") as incoming, os.fdopen(replies, "wb") as outgoing:
        while (request := receive(incoming, session.request_type)) is not None:
            reply = session.handle(request)
            _flush()
            send(outgoing, reply)


def _moved_to_high_number(descriptor: int) -> int:
    import fcntl

    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_PROTOCOL_DESCRIPTOR)
    os.close(descriptor)
    return found


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the benchmark may have closed it
            stream.flush()


if __name__ == "__main__":
    main()
