"""Reads source files of kernels: bounded in size, UTF-8, and only inside the kernels folder."""

from __future__ import annotations

import os
from pathlib import Path

from torchstone.schema import SourceFile

MAX_BYTES = 4 << 20
"""Most bytes of source text of one kernel, over all of its files. They are stored in the run folder and sent to the
worker. The largest kernels in use are a hundred times smaller."""


class UnreadableError(Exception):
    """A kernel's folder cannot be used. The message is one line and says why."""


def read_source(path: Path, root: Path, bytes_left: int, name: str | None = None) -> tuple[SourceFile, int]:
    """Read a file. Returns it, under ``name`` if that is given, and the bytes that the kernel's other files may have.

    Raises UnreadableError for a file that is too large, not UTF-8, no file, or outside of the kernels folder.
    """
    shown = name or path.name
    require_inside(path, root)
    if not path.is_file():
        raise UnreadableError(f"{shown} is not a file" if path.exists() else f"{shown} is a link to nothing")
    with path.open("rb") as file:
        data = file.read(bytes_left + 1)
    if len(data) > bytes_left:
        raise UnreadableError(f"too large: more than {MAX_BYTES >> 20} MiB of source")
    return SourceFile(shown, _text(shown, data)), bytes_left - len(data)


def require_inside(path: Path, root: Path) -> None:
    """Raise UnreadableError for a link out of the kernels folder: its target would be copied into the run folder."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise UnreadableError(f"{path.name} is a link out of the kernels folder; copy what it names")


def system_reason(error: OSError) -> str:
    """The system's text for the error, in lower case."""
    return (error.strerror or type(error).__name__).lower()


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{name} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
