"""Lets a command finish its work although nobody reads its stdout or stderr any more: `torchstone run … | head -1`."""

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


class _Buffered(io.BufferedWriter):
    """Drops what is written after its reader has closed the pipe.

    Only what fails is handled in Python: an interrupt between a write and its end would write the same text again.
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
        """Let this descriptor lead nowhere, for what is buffered and for all that follows."""
        self.is_lost = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def closed_pipes_ignored() -> Iterator[None]:
    """Within it, writing to stdout or stderr succeeds also where the other end is closed.

    Streams that a caller has put in their place, as tests do, stay as they are.
    """
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _dropping(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _dropping(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


def _dropping(stream: TextIO | None) -> TextIO:
    """The same stream, over a descriptor that drops what nobody reads."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # type: ignore[return-value]
    at_once = stream.line_buffering or stream.write_through
    buffer = _Buffered(io.FileIO(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=at_once)


def is_closed_pipe(stream: TextIO) -> bool:
    """Whether nobody can read what is written to this stream."""
    if getattr(getattr(stream, "buffer", None), "is_lost", False):
        return True
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return False
    asked = select.poll()
    asked.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in asked.poll(0))
