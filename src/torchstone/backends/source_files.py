"""Reads source files of kernels: bounded in size, UTF-8, and only inside the kernels folder."""

from __future__ import annotations

import os
from pathlib import Path

from torchstone.schema import SourceFile

MAX_BYTES = 4 << 20
"""Source text of one kernel, in bytes, with all files that are sent with it. It is kept in the run folder and sent to
the worker; the largest kernels in use are a hundred times smaller."""


class UnreadableError(Exception):
    """Why a kernel's folder offers nothing; one line."""


def read_source(path: Path, root: Path, left: int, name: str | None = None) -> tuple[SourceFile, int]:
    """The file, under another name if one is given, and how many bytes are left to read of this kernel."""
    shown = name or path.name
    require_inside(path, root)
    if not path.is_file():
        raise UnreadableError(f"{shown} is not a file" if path.exists() else f"{shown} is a link to nothing")
    with path.open("rb") as file:
        data = file.read(left + 1)
    if len(data) > left:
        raise UnreadableError(f"too large: more than {MAX_BYTES >> 20} MiB of source")
    return SourceFile(shown, _text(shown, data)), left - len(data)


def require_inside(path: Path, root: Path) -> None:
    """A link may lead anywhere in the kernels folder, not out of it: its target would be copied into the run folder."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise UnreadableError(f"{path.name} is a link out of the kernels folder; copy what it names")


def system_reason(error: OSError) -> str:
    """What the file system says, in lower case."""
    return (error.strerror or type(error).__name__).lower()


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{name} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
