"""A lock on each device (its *lane*) for all processes of the machine: one judge measures alone, or several check.

A judge that measures holds the lane exclusively. Judges that only check share it. Every judge first takes a second
lock, the gate. A judge that waits to measure holds the gate until the others have left the lane, so it cannot wait
forever. The locks are those of Linux (``flock``), which releases them when a judge is killed.

A held gate also shows the judges in the lane that one waits to measure. A check that may take long, such as a
compilation, gives up its place meanwhile (:meth:`MeasuringLane.make_way`). Otherwise every measurement would wait for
the slowest compilation.

To wait for an empty lane takes as long as the slowest check. So all judges that wait to measure do it one after another
before checks go on. Each holds a third lock (``measuring``), and a check waits for it for a bounded time only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_SHARED_FOLDER = Path("/tmp/torchstone-lanes")
"""Not TMPDIR, which differs between users and jobs: all of them must meet in one place."""
_MOST_YIELDING_SECONDS = 5.0
"""Most seconds for which a check lets waiting measurements go first, so that endless measurements do not stop it."""
_POLL_SECONDS = 0.002
"""Pause between two tests whether another judge measures or waits to."""


class MeasuringLane:
    """The lane of one device, named the same in every process of this machine."""

    def __init__(self, device_name: str, folder: Path | None = None) -> None:
        where = folder or _SHARED_FOLDER
        _make_shared_folder(where)
        self._gate = _open_shared(where / f"{device_name}.gate")
        self._lane = _open_shared(where / f"{device_name}.lane")
        self._measuring = _open_shared(where / f"{device_name}.measuring")
        self.waits = False
        """Whether this process waits for the lane now, which can take any time."""
        self._lock_kind: int | None = None
        self.waited_seconds = 0.0
        """Total time for which this process has waited for the lane."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Share the lane: for work that may run beside other checks, but not beside a measurement."""
        with self._holding(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lane alone: for measuring. A shared place is left for that, and taken again afterwards."""
        with self._holding(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _holding(self, kind: int) -> Iterator[None]:
        before = self._lock_kind
        if before == kind == fcntl.LOCK_SH or before == fcntl.LOCK_EX:
            yield
            return
        self._leave()  # before waiting: two judges that kept their places would wait for each other
        self._enter(kind)
        try:
            yield
        finally:
            self._leave()
            if before is not None:
                self._enter(before)

    @property
    def is_shared(self) -> bool:
        """Whether this process has a shared place."""
        return self._lock_kind == fcntl.LOCK_SH

    @property
    def is_exclusive(self) -> bool:
        """Whether this process has the lane to itself."""
        return self._lock_kind == fcntl.LOCK_EX

    def is_wanted(self) -> bool:
        """Whether another judge waits to measure until those that share the lane have left."""
        if not self.is_shared:
            return False
        try:
            fcntl.flock(self._gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return False

    def make_way(self) -> None:
        """Leave the shared place to a judge that waits to measure, and take it again. All workers of this judge must be
        paused.
        """
        self._leave()
        self._enter(fcntl.LOCK_SH)

    def _enter(self, kind: int) -> None:
        began = time.monotonic()
        self.waits = True
        try:
            if kind == fcntl.LOCK_EX:
                fcntl.flock(self._measuring, fcntl.LOCK_SH)
            else:
                self._let_measurements_pass()
            fcntl.flock(self._gate, kind)
            try:
                fcntl.flock(self._lane, kind)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        finally:
            self.waits = False
        self._lock_kind = kind
        self.waited_seconds += time.monotonic() - began

    def _let_measurements_pass(self) -> None:
        """Wait until no judge measures or waits to, for a bounded time."""
        until = time.monotonic() + _MOST_YIELDING_SECONDS
        while time.monotonic() < until:
            try:
                fcntl.flock(self._measuring, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
                continue
            fcntl.flock(self._measuring, fcntl.LOCK_UN)
            return

    def _leave(self) -> None:
        if self._lock_kind is not None:
            self._lock_kind = None
            fcntl.flock(self._lane, fcntl.LOCK_UN)
            fcntl.flock(self._measuring, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._gate, self._lane, self._measuring):
            os.close(descriptor)


def _make_shared_folder(folder: Path) -> None:
    """Make the folder with the mode of /tmp: every user may lock there, none may remove another's files."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)


def _open_shared(path: Path) -> int:
    """Open or create a lock file. No O_CREAT on a file of another user: Linux may refuse that in a sticky folder."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
