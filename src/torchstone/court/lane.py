"""One measuring lane per device, across processes and runs.

Whoever measures holds the device alone; whoever only checks shares it with other checkers. Two locks make it
fair: everybody passes a gate first, and who waits for the lane to empty keeps the gate shut meanwhile. The locks
are the kernel's (``flock``): a killed judge lets go of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_SHARED_FOLDER = Path("/tmp/torchstone-lanes")
"""Not TMPDIR, which differs between users and jobs: all of them must meet in one place."""


class Lane:
    """The lane of one device, named the same in every process of this machine."""

    def __init__(self, device_name: str, folder: Path | None = None) -> None:
        where = folder or _SHARED_FOLDER
        _make_shared_folder(where)
        self._gate = _open_shared(where / f"{device_name}.gate")
        self._lane = _open_shared(where / f"{device_name}.lane")
        self.waits = False
        """Whether somebody else has it: that can take any time."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """For work that may run beside other checks, but not beside a measurement."""
        yield from self._hold(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """For measuring."""
        yield from self._hold(fcntl.LOCK_EX)

    def _hold(self, kind: int) -> Iterator[None]:
        self.waits = True
        fcntl.flock(self._gate, kind)
        try:
            fcntl.flock(self._lane, kind)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            self.waits = False
        try:
            yield
        finally:
            fcntl.flock(self._lane, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._lane)


def _make_shared_folder(folder: Path) -> None:
    """Like /tmp itself: every user may lock there, none may remove another's files."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)


def _open_shared(path: Path) -> int:
    """Never O_CREAT on a file that exists: in a sticky folder the kernel may refuse that for another user's."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # somebody was faster
        return os.open(path, flags)
