"""Sends requests to a child process and waits for replies with a deadline, reports how it ended, and kills it.

Every wait has a deadline. The process's output goes to a log, separate from the replies.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from torchstone.processes.bounded_log import BoundedLog
from torchstone.processes.msgpack_framing import frame, take

STATUS = struct.Struct("<i")
"""Format of what the keeper (see `keeper`) writes: first its own pid, at the end the wait status of the process."""
PIPE_BYTES = 1 << 20
_MOST_LOG_READS = 16
"""Most reads of the log in a row: a process that prints without end must not delay its parent's deadline checks."""
_WATCH_SECONDS = 0.1
"""Time between two calls of ``watch``."""
_GONE_SECONDS = 30.0
"""Longest wait for the end of a killed process: the system can take seconds to free memory, most of all a device's."""

T = TypeVar("T")


class ChildEndedError(Exception):
    """The process has ended; the message says how."""


class ReplyTimeoutError(Exception):
    """There was no reply before the deadline."""


class Ends(NamedTuple):
    """Descriptors of the parent's ends."""

    requests: int
    replies: int
    log: int
    status: int
    leash: int


class ChildProcess:
    """Handle on one process, from its start to its end. It must not be used by several threads at once."""

    def __init__(self, ends: Ends, log: BoundedLog, watch: Callable[[int], None] | None = None) -> None:
        """``watch`` is called repeatedly with the keeper's pid while the parent waits for a reply; it may raise."""
        self._ends = ends
        self.log = log
        self._watch = watch
        self._replies = bytearray()
        self._status = bytearray()
        self._wait_status: int | None = None
        self._gone = False
        self._closed = False
        self.keeper_pid: int | None = None
        """Parent of the process and of its orphans. None until the keeper has sent it."""
        self._poll = select.poll()
        for descriptor in (ends.replies, ends.log, ends.status):
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN | select.POLLHUP)

    def wait_until_born(self, deadline: float) -> bool:
        """Wait until the keeper has started; return whether it did by the deadline.

        With this wait, the start does not take time from the first request's deadline.
        """
        while self.keeper_pid is None and not self._gone and time.monotonic() < deadline:
            self._poll.poll(100)
            self._read_available()
        return self.keeper_pid is not None

    def ask(self, message: Any, kind: type[T], deadline: float) -> T:
        """Send a request and wait for its reply until the deadline, by `time.monotonic`."""
        try:
            self._send(memoryview(frame(message)), deadline)
        except BrokenPipeError:
            self._wait_for_status()
            raise ChildEndedError(self.ending) from None
        return self._reply(kind, deadline)

    def end(self) -> None:
        """End the process and all that it started, and wait for their end. Further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        os.close(self._ends.leash)
        until = time.monotonic() + _GONE_SECONDS
        while not self._gone and time.monotonic() < until:
            self._poll.poll(100)
            self._read_available()
        self._drain_log(1 << 10)
        self.log.close()
        for descriptor in (self._ends.requests, self._ends.replies, self._ends.log, self._ends.status):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    @property
    def ending(self) -> str:
        """How the process ended, in words."""
        if self._wait_status is None:
            return "was killed together with its keeper"
        return ending_in_words(os.waitstatus_to_exitcode(self._wait_status))

    def _send(self, view: memoryview, deadline: float) -> None:
        os.set_blocking(self._ends.requests, False)
        while view:
            try:
                view = view[os.write(self._ends.requests, view) :]
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ReplyTimeoutError from None
                select.select([], [self._ends.requests], [], _WATCH_SECONDS)
                self._drain_log(_MOST_LOG_READS)

    def _reply(self, kind: type[T], deadline: float) -> T:
        watch_again = time.monotonic() + _WATCH_SECONDS
        while True:
            data = take(self._replies)
            if data is not None:
                return msgspec.msgpack.decode(data, type=kind)
            if self._wait_status is not None or self._gone:
                raise ChildEndedError(self.ending)
            now = time.monotonic()
            if now >= deadline:
                raise ReplyTimeoutError
            self._poll.poll(1000 * max(0.0, min(deadline - now, watch_again - now)))
            self._read_available()
            if time.monotonic() >= watch_again:
                watch_again = time.monotonic() + _WATCH_SECONDS
                if self._watch is not None and self.keeper_pid is not None and not self._replies:
                    self._watch(self.keeper_pid)

    def _read_available(self) -> None:
        self._drain_log(_MOST_LOG_READS)
        while data := self._read(self._ends.replies):
            self._replies += data
        # Read after the replies: the reply of a process that then ends still counts.
        while (data := self._read(self._ends.status)) is not None:
            if not data:
                self._gone = True
                self._forget(self._ends.status)
                return
            self._status += data
            self._take_status()

    def _take_status(self) -> None:
        """Decode the keeper's pid and the wait status of the process."""
        while len(self._status) >= STATUS.size:
            (number,) = STATUS.unpack(self._status[: STATUS.size])
            del self._status[: STATUS.size]
            if self.keeper_pid is None:
                self.keeper_pid = number
            else:
                self._wait_status = number

    def _wait_for_status(self) -> None:
        until = time.monotonic() + 1.0
        while self._wait_status is None and not self._gone and time.monotonic() < until:
            self._poll.poll(100)
            self._read_available()

    def _drain_log(self, reads: int) -> None:
        for _ in range(reads):
            data = self._read(self._ends.log)
            if not data:
                return
            self.log.write(data)

    def _read(self, descriptor: int) -> bytes | None:
        """The bytes that can be read now; empty at the end of the file, None if there are none yet."""
        try:
            data = os.read(descriptor, PIPE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""
        if not data:
            self._forget(descriptor)  # a closed pipe would wake every poll
        return data

    def _forget(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(descriptor)


def ending_in_words(exit_code: int) -> str:
    """How a process ended, in words. ``exit_code`` is that of `subprocess`: negative for a signal."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # real-time signals have no name
        return f"was killed by signal {-exit_code}"
