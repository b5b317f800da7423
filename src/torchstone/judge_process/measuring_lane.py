"""A lock on each device (its *lane*) for all processes of the machine: one judge measures alone, or several check.

A judge that measures holds the device alone. Judges that only check share it. Two locks make this fair: every judge
passes a gate first, and one that waits for the lane to empty keeps the gate shut meanwhile. The locks are the
kernel's (``flock``): a killed judge releases them.

A shut gate also tells the judges in the lane that one waits to measure. A check that may take long, such as a
compilation, gives up its place meanwhile (:meth:`MeasuringLane.make_way`). Otherwise every measurement would wait for
the slowest compilation.

To empty the lane takes as long as the slowest check. So all judges that wait to measure do it one after another before
checks go on: a third lock tells who measures or waits to. A check waits for them for a bounded time only.
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
"""For which a check lets measurements that wait go first: a program that does nothing but measure may not stop it."""
_LOOK_SECONDS = 0.002
"""Between two looks whether somebody still measures or waits to."""


class MeasuringLane:
    """The lane of one device, named the same in every process of this machine."""

    def __init__(self, device_name: str, folder: Path | None = None) -> None:
        where = folder or _SHARED_FOLDER
        _make_shared_folder(where)
        self._gate = _open_shared(where / f"{device_name}.gate")
        self._lane = _open_shared(where / f"{device_name}.lane")
        self._measuring = _open_shared(where / f"{device_name}.measuring")
        self.waits = False
        """Whether somebody else has it: that can take any time."""
        self._held: int | None = None
        self.waited_seconds = 0.0
        """For a place, since the beginning: what this process could not do because others used the device."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """For work that may run beside other checks, but not beside a measurement."""
        with self._holding(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """For measuring. Who has a shared place leaves it for that and comes back to it afterwards."""
        with self._holding(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _holding(self, kind: int) -> Iterator[None]:
        before = self._held
        if before == kind == fcntl.LOCK_SH or before == fcntl.LOCK_EX:
            yield
            return
        self._leave()  # before waiting: two that kept their places would wait for each other
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
        return self._held == fcntl.LOCK_SH

    @property
    def is_exclusive(self) -> bool:
        """Whether this process has the lane to itself."""
        return self._held == fcntl.LOCK_EX

    def is_wanted(self) -> bool:
        """Whether somebody waits to measure until those who share the lane have left."""
        if not self.is_shared:
            return False
        try:
            fcntl.flock(self._gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return False

    def make_way(self) -> None:
        """Leave the shared place to a judge that waits to measure, and come back. Everything of this judge must stand
        still.
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
        self._held = kind
        self.waited_seconds += time.monotonic() - began

    def _let_measurements_pass(self) -> None:
        """Wait until nobody measures or waits to, or for as long as that is due."""
        until = time.monotonic() + _MOST_YIELDING_SECONDS
        while time.monotonic() < until:
            try:
                fcntl.flock(self._measuring, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOK_SECONDS)
                continue
            fcntl.flock(self._measuring, fcntl.LOCK_UN)
            return

    def _leave(self) -> None:
        if self._held is not None:
            self._held = None
            fcntl.flock(self._lane, fcntl.LOCK_UN)
            fcntl.flock(self._measuring, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._gate, self._lane, self._measuring):
            os.close(descriptor)


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
