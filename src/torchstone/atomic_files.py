"""Writes files in one step: after a crash a file has its old content or its new one, never a part.

Also syncs files that grow (:class:`BackgroundSync`), and finds the user's cache folder.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_SYNC_THREADS = 16
"""Most files that are written and synced at the same time: a disk syncs many together about as fast as one."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file in one step: after a crash it has the old content or the new, never a part."""
    _replace(path, data)
    sync_folder(path.parent)


def write_all_atomically(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace many files of a folder, each in one step; far quicker than one after another."""
    if not files:
        return
    with ThreadPoolExecutor(min(_SYNC_THREADS, len(files))) as threads:
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


class BackgroundSync:
    """Syncs a file to the disk in the background.

    A sync takes milliseconds, too long to wait for after every line. So a thread syncs, and one sync covers all lines
    that were written while the one before ran. Written lines survive the end of the process in any case; the sync
    protects against a power cut.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._writes = self._synced_writes = 0
        self._is_closing = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._sync_until_closed, daemon=True)
        self._thread.start()

    def wrote(self) -> None:
        """Schedule a sync, after the caller has written. Raises OSError if an earlier sync failed."""
        with self._changed:
            self._raise_error()
            self._writes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until everything written is on the disk. Does not close the descriptor, which belongs to the caller."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _sync_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._synced_writes != self._writes)
                if self._synced_writes == self._writes:
                    return
                writes_before_sync = self._writes
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._error = error
            self._synced_writes = writes_before_sync


def sync_folder(folder: Path) -> None:
    """Make created and renamed entries of the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


KERNEL_CACHE_VARIABLE = "PYTORCH_KERNEL_CACHE_PATH"
"""Environment variable: the folder in which torch keeps kernels that it compiles at their first call on a GPU. Each
takes a second or more."""


def kernel_cache_environment() -> dict[str, str]:
    """The environment variable by which trusted processes share the kernels that torch compiles. Empty for a user
    without a home.
    """
    folder = cache_folder("compiled")
    if folder is None:
        return {}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return {KERNEL_CACHE_VARIABLE: str(folder)}


def cache_folder(name: str) -> Path | None:
    """Torchstone's folder among the user's caches; None for a user without a home."""
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(caches).absolute() / "torchstone" / name
