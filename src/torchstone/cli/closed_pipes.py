"""Lets a command finish its work after the reader of its stdout or stderr has closed the pipe, as `head -1` does."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _DroppingWriter(io.BufferedWriter):
    """Drops what is written after the reader has closed the pipe.

    Only the failure is handled in Python. If writing were, an interrupt in the middle could write the same text twice.
    """

    is_lost = False
    """Whether the reader has closed the pipe."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._drop()
            return memoryview(data).nbytes

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Redirect the descriptor to /dev/null, for buffered and for later text."""
        self.is_lost = True
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, self.fileno())
        os.close(null_device)


@contextlib.contextmanager
def closed_pipes_ignored() -> Iterator[None]:
    """Within it, writing to stdout or stderr succeeds even if the other end of the pipe is closed.

    Streams with which a caller has replaced them, as tests do, are not changed.
    """
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _with_dropping_writer(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _with_dropping_writer(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


def _with_dropping_writer(stream: TextIO | None) -> TextIO:
    """A stream over the same descriptor that drops text once the reader has closed the pipe."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # type: ignore[return-value]
    line_buffered = stream.line_buffering or stream.write_through
    buffer = _DroppingWriter(io.FileIO(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=line_buffered)


def is_closed_pipe(stream: TextIO) -> bool:
    """Whether the reader of this stream has closed the pipe."""
    if getattr(getattr(stream, "buffer", None), "is_lost", False):
        return True
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return False
    asked = select.poll()
    asked.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in asked.poll(0))
