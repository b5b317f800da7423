"""A small file in which a process notes its next step, so that its parent can explain why it died."""

from __future__ import annotations

import os
from pathlib import Path

_BYTES = 256


class StageFile:
    """Writer of the file. Each write is one system call; the parent reads the file after this process has ended."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, stage: str) -> None:
        """Replace the content of the file."""
        os.pwrite(self._descriptor, stage.encode("utf-8", "replace")[:_BYTES].ljust(_BYTES, b"\0"), 0)


def read_stage(path: Path) -> str:
    """The text that was written last; empty if there is none."""
    try:
        return path.read_bytes().rstrip(b"\0").decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
