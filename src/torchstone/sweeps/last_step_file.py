"""A small file that holds the last step of a process, so that its parent can tell what it did when it died."""

from __future__ import annotations

import os
from pathlib import Path

_BYTES = 256


class LastStepFile:
    """Writer of the file. Each write is one system call; the parent reads the file after this process has ended."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, step: str) -> None:
        """Replace the content of the file by the step that begins now."""
        os.pwrite(self._descriptor, step.encode("utf-8", "replace")[:_BYTES].ljust(_BYTES, b"\0"), 0)


def read_last_step(path: Path) -> str:
    """The step that was written last; empty if there is none."""
    try:
        return path.read_bytes().rstrip(b"\0").decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
