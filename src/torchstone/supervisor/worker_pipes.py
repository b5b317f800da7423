"""The judge's ends of a worker's pipes: replies, printed output, and its parent's (the warden's) report of its end."""

from __future__ import annotations

import os
import select
import time

import msgspec

from torchstone.protocol.json_framing import HEADER_BYTES, frame_length
from torchstone.protocol.replies import MAX_REPLY_BYTES, Ending, Reply
from torchstone.schema import decode
from torchstone.supervisor.worker_failures import BadReplyError

PIPE_BYTES = 1 << 20
"""Capacity of a worker's pipe for printed output, so that a worker that prints much does not wait for the judge."""
_MOST_LOG_READS = 4
"""Most reads of printed output in a row: a candidate that prints without end must not delay the deadline check."""
_END_SECONDS = 5.0
"""Longest wait for the warden's report after the worker has closed its pipe."""


class WorkerPipes:
    """Reads the pipes of one worker and its warden. Every wait has a time limit."""

    def __init__(self, replies: int, log: int, status: int, log_tail_bytes: int) -> None:
        self._replies, self._log, self._status = replies, log, status
        self._log_tail_bytes = log_tail_bytes
        self._reply_bytes = bytearray()
        self._status_bytes = bytearray()
        self._tail = bytearray()
        self.has_ended = False
        """Whether its warden has closed its pipe."""
        self.ending: Ending | None = None
        self.warden_pid: int | None = None
        self._closed = False
        self._poll = select.poll()
        for descriptor in (replies, log, status):
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    def has_input(self, milliseconds: float) -> bool:
        """Wait until a pipe has something to read; return whether one has before the time is over."""
        return bool(self._poll.poll(milliseconds))

    @property
    def log_tail(self) -> str:
        """The end of the worker's printed output."""
        self._drain_log()
        return self._tail.decode("utf-8", "replace")

    def clear_log(self) -> None:
        """Drop the output so far: the next case's record gets its own tail."""
        self._drain_log()
        self._tail.clear()

    @property
    def unread_bytes(self) -> int:
        """Number of bytes of replies that were received and not taken."""
        return len(self._reply_bytes)

    def take_reply(self) -> Reply | None:
        """The next complete reply; None if there is none yet. Raises BadReplyError if it does not decode."""
        if len(self._reply_bytes) < HEADER_BYTES:
            return None
        length = frame_length(bytes(self._reply_bytes[:HEADER_BYTES]))
        if length > MAX_REPLY_BYTES:
            raise BadReplyError(f"a reply of {length} bytes (at most {MAX_REPLY_BYTES} are accepted)")
        if len(self._reply_bytes) < HEADER_BYTES + length:
            return None
        data = bytes(self._reply_bytes[HEADER_BYTES : HEADER_BYTES + length])
        del self._reply_bytes[: HEADER_BYTES + length]
        try:
            return decode(data, Reply)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise BadReplyError(f"a reply that does not decode: {error}") from None

    def has_answer(self) -> bool:
        """Whether the bytes of a whole reply were read, valid or not."""
        length = len(self._reply_bytes)
        return length >= HEADER_BYTES and length >= HEADER_BYTES + frame_length(bytes(self._reply_bytes[:HEADER_BYTES]))

    def read_available(self) -> None:
        """Read what the pipes have now, without waiting."""
        self._drain_log()
        self.read_status()
        # Bounded: a candidate that floods the pipe must not fill the judge's memory.
        while len(self._reply_bytes) <= MAX_REPLY_BYTES + HEADER_BYTES:
            data = _read(self._replies)
            if not data:
                if data == b"" and not self.has_ended:
                    self.await_end()
                return
            self._reply_bytes += data

    def _drain_log(self) -> None:
        for _ in range(_MOST_LOG_READS):
            if self._closed or not (data := _read(self._log)):
                return
            self._tail += data
            del self._tail[: -self._log_tail_bytes]

    def read_status(self) -> None:
        """Read the reports of the warden, and whether it has closed its pipe."""
        while (data := _read(self._status)) is not None:
            if data == b"":
                self.has_ended = True
                return
            self._status_bytes += data
            self._parse_status()

    def _parse_status(self) -> None:
        """Decode first the warden's pid, then its report of the worker's end. Only trusted processes write them."""
        while len(self._status_bytes) >= HEADER_BYTES:
            length = frame_length(bytes(self._status_bytes[:HEADER_BYTES]))
            if len(self._status_bytes) < HEADER_BYTES + length:
                return
            data = bytes(self._status_bytes[HEADER_BYTES : HEADER_BYTES + length])
            del self._status_bytes[: HEADER_BYTES + length]
            if self.warden_pid is None:
                self.warden_pid = msgspec.json.decode(data, type=int)
            else:
                self.ending = msgspec.json.decode(data, type=Ending)

    def await_end(self) -> None:
        """After the worker has closed its pipe, wait for the warden's report of its end."""
        until = time.monotonic() + _END_SECONDS
        while not self.has_ended and time.monotonic() < until:
            select.select([self._status, self._log], [], [], 0.05)
            self.read_status()
            self._drain_log()
        self.has_ended = True

    def close(self) -> None:
        """Read the remaining output, and close the pipes."""
        self._drain_log()
        self._closed = True
        for descriptor in (self._replies, self._log, self._status):
            os.close(descriptor)


def _read(descriptor: int) -> bytes | None:
    """The bytes that can be read now; empty at the end of the file, None if there are none yet."""
    try:
        return os.read(descriptor, PIPE_BYTES)
    except BlockingIOError:
        return None
