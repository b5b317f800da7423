"""Files that are either whole or not there. One place, so that every file of ours is written the same way."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_AT_ONCE = 16
"""A disk that is asked to keep many files does so together."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file in one step: a reader, or a crash, meets the old content or the new, never a part."""
    _replace(path, data)
    sync_folder(path.parent)


def write_all_atomically(folder: Path, files: Mapping[str, bytes]) -> None:
    """The same for many files of a folder, each on its own; far quicker than one after another."""
    if not files:
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(files))) as threads:
        list(threads.map(lambda item: _replace(folder / item[0], item[1]), files.items()))
    sync_folder(folder)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make created and renamed entries of the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder(name: str) -> Path | None:
    """Ours among the user's caches; None for a user without a home."""
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(caches).absolute() / "torchstone" / name
