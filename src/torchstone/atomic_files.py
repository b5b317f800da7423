"""Writes files in one step: after a crash a file has its old content or its new one, never a part.

Also syncs files that grow (:class:`SyncedBehind`), and finds the user's cache folder.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_AT_ONCE = 16
"""Files that are synced at once: a disk writes many together as fast as one."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file in one step: after a crash it has the old content or the new, never a part."""
    _replace(path, data)
    sync_folder(path.parent)


def write_all_atomically(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace many files of a folder, each in one step; far quicker than one after another."""
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


class SyncedBehind:
    """Syncs a file to the disk in the background.

    Waiting for the disk takes milliseconds for each line, so one sync serves all lines that were written during the
    last one. Written lines survive the end of the process in any case; the sync protects against a power cut.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._written = self._synced = 0
        self._ends = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wrote(self) -> None:
        """Schedule a sync. Raises the error of an earlier one."""
        with self._changed:
            self._raise_error()
            self._written += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until the disk has everything. The descriptor stays the caller's."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self._synced != self._written)
                if self._synced == self._written:
                    return
                reached = self._written
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._error = error
            self._synced = reached


def sync_folder(folder: Path) -> None:
    """Make created and renamed entries of the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


KERNELS_OF_TORCH = "PYTORCH_KERNEL_CACHE_PATH"
"""Variable for the folder of kernels that torch compiles at their first call on a GPU, in a second or more each."""


def keeps_kernels_of_torch() -> dict[str, str]:
    """Environment variable for trusted processes that call torch, so that they share the compiled kernels."""
    folder = cache_folder("compiled")
    if folder is None:
        return {}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return {KERNELS_OF_TORCH: str(folder)}


def cache_folder(name: str) -> Path | None:
    """Torchstone's folder among the user's caches; None for a user without a home."""
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(caches).absolute() / "torchstone" / name
