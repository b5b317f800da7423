"""Starts benchmark processes as forks of one process that has imported torch and never touches a device.

Importing torch takes a second of a core and its compiler several; a fork takes milliseconds. Usable from several
threads. What runs in the fork server's own process is in ``fork_server_process.py``. A side is a forked process that
answers requests: it runs one benchmark, or measures the points of a sweep.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Self

from torchstone.errors import InfrastructureError
from torchstone.processes import BoundedLog, ChildProcess, Ends
from torchstone.processes.child_process import PIPE_BYTES
from torchstone.protocol.worker_environment import start_apart

DETERMINISTIC = b"deterministic"
"""Request for a process that uses deterministic algorithms. The server first imports what torch needs for them."""
SIDE_SESSION = "torchstone.harness.side_session:SideSession"
"""Class that answers requests in the process of a benchmark."""
_STOP_SECONDS = 5.0
_START_SECONDS = 120.0
"""Longest wait for a new process. The server may still import torch and its compiler, from a cold disk."""


class ForkServer:
    """Handle on the fork server, the process that imports torch. It starts with the first side."""

    def __init__(self, is_cuda: bool, profiles: bool = False, session: str = SIDE_SESSION) -> None:
        """`session` answers requests in each process.

        `profiles`: sides will use torch's profiler, which imports torch's compiler. It is imported once, here.
        """
        self._arguments = ("cuda" if is_cuda else "cpu", session, *(["profiles"] if profiles else []))
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start_side(
        self, log: BoundedLog, watch: Callable[[int], None] | None = None, deterministic: bool = False
    ) -> ChildProcess:
        """Fork a new process, in which no benchmark is loaded yet."""
        for _ in range(2):  # a fork server that was killed is replaced once
            with self._lock:
                requests = self._server_socket()
            ends, theirs = _pipes()
            try:
                socket.send_fds(requests, [DETERMINISTIC if deterministic else b"side"], theirs)
            except OSError:
                for descriptor in ends:
                    os.close(descriptor)
                self._discard_server(requests)
                continue
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            child = ChildProcess(ends, log, watch)
            if child.wait_until_born(time.monotonic() + _START_SECONDS):
                return child
            child.end()
            self._discard_server(requests)
        raise InfrastructureError("the process that starts benchmarks ends at once. Try 'python -c \"import torch\"'.")

    def stop(self) -> None:
        """End the fork server. Sides that are alive are not ended."""
        with self._lock:
            requests, process, self._requests, self._process = self._requests, self._process, None, None
        if requests is not None:
            requests.close()
        if process is None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it is still importing
            process.kill()
            process.wait()

    def _server_socket(self) -> socket.socket:
        if self._requests is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            module = "torchstone.harness.fork_server_process"
            self._process = start_apart(module, theirs, *self._arguments, environment=os.environ)
            theirs.close()
            self._requests = ours
        return self._requests

    def _discard_server(self, requests: socket.socket) -> None:
        with self._lock:
            if self._requests is not requests:
                return
            self._requests = None
            process, self._process = self._process, None
        requests.close()
        if process is not None:
            process.kill()
            process.wait()


def _pipes() -> tuple[Ends, list[int]]:
    """Make pipes: our ends, and the side's ends in the order in which the fork server expects them."""
    requests, replies, log, status, leash = (os.pipe() for _ in range(5))
    with contextlib.suppress(OSError):  # where a user may have no more, the usual 64 KiB do
        fcntl.fcntl(log[0], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    ours = Ends(requests[1], replies[0], log[0], status[0], leash[1])
    return ours, [requests[0], replies[1], log[1], status[1], leash[0]]


_shared: dict[bool, ForkServer] = {}
_shared_lock = threading.Lock()


def shared_fork_server(is_cuda: bool) -> ForkServer:
    """The fork server for CUDA or for the CPU that the Python functions of this process share. It ends at exit."""
    with _shared_lock:
        if is_cuda not in _shared:
            _shared[is_cuda] = ForkServer(is_cuda)
            atexit.register(_shared[is_cuda].stop)
        return _shared[is_cuda]
