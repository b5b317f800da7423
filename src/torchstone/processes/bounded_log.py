"""Stores the output of a process within bounds: the tail in memory, the beginning and the tail in a file."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

FILE_BYTES = 1 << 20
"""Most bytes of the file, without the tail at its end: enough to read, and hundreds of logs fit on any disk."""
TAIL_BYTES = 1 << 14
"""Most bytes of the tail that is kept in memory."""


class BoundedLog:
    """Accepts any amount of output and keeps a bounded part. The file is created with the first byte."""

    def __init__(self, path: Path | None = None, file_bytes: int = FILE_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._file_bytes = file_bytes
        self._tail_bytes = tail_bytes
        self._tail = bytearray()
        self.total_bytes = 0

    def write(self, data: bytes) -> None:
        if not data:
            return
        left_bytes = self._file_bytes - self.total_bytes
        if left_bytes > 0 and self._path is not None:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb")
            self._file.write(data[:left_bytes])
        self.total_bytes += len(data)
        self._tail += data
        del self._tail[: -self._tail_bytes]

    def close(self) -> None:
        """Close the file. If it lacks output, first append how many bytes exceeded its limit, and the tail."""
        if self._file is None:
            return
        missing = self.total_bytes - self._file_bytes
        if missing > 0:
            self._file.write(f"\n[{missing} more bytes were printed; these are the last]\n".encode() + self._tail)
        self._file.close()
        self._file = None

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")
