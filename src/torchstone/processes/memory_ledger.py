"""Reserves device or host memory in a ledger, so that processes of this machine that need much of it take turns.

A process reserves what it needs before it takes it, and waits until that fits beside the reservations of others. The
ledger counts reservations, not memory. Three rules keep it free of deadlocks and fair:

- A reservation is granted as a whole, in the order in which processes asked. A large one is not overtaken.
- Nobody waits for memory while holding a reservation. It may be enlarged only if that fits at once.
- While no other reservation is granted, the first in line is granted, whatever its size. Its caller must check whether
  it fits.

The file has a line of fixed length for each reservation. A process writes one line at a time, under a lock (``flock``),
so that a killed process leaves no half-written line. Lines of processes that have ended are reused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from torchstone.processes.free_memory import usable_host_bytes

_SHARED_FOLDER = Path("/tmp/torchstone-lanes")
"""Not TMPDIR, which differs between users and jobs: all of them must meet in one place."""
_LINE_BYTES = 128
"""Divides the size of a page: no line crosses a page boundary, so none is ever half written."""
_LOOK_SECONDS = 0.05
_PARTS_LEFT = 8
"""One eighth of a device's memory is never reserved: it is for contexts of processes, and for small allocations that
need no reservation."""
_SMALL_PARTS = 64
"""A process may take 1/64 of a memory without a reservation."""


def small_bytes(total_bytes: int) -> int:
    """What a process may take of a memory of this size without a reservation."""
    return total_bytes // _SMALL_PARTS


def device_capacity(total_bytes: int) -> int:
    """How much of a device's memory can be reserved."""
    return total_bytes - total_bytes // _PARTS_LEFT


def device_ledger(device_name: str, total_bytes: int) -> MemoryLedger:
    """The ledger of a device, under a name that is the same in every process of this machine."""
    return MemoryLedger(device_name, lambda: device_capacity(total_bytes))


def host_ledger() -> MemoryLedger:
    """The ledger of the host's memory. Its capacity is a share of what is free now."""
    return MemoryLedger("host", usable_host_bytes)


class _Line(NamedTuple):
    """One reservation, granted or waiting."""

    place: int
    """Which line of the file it is."""
    ticket: int
    """Grows with every reservation: the lower one was first."""
    pid: int
    started: int
    """When the process started: another process may get the same pid later."""
    is_granted: bool
    size_bytes: int

    @property
    def data(self) -> bytes:
        words = (self.ticket, self.pid, self.started, int(self.is_granted), self.size_bytes)
        return " ".join(map(str, words)).encode().ljust(_LINE_BYTES - 1) + b"\n"


class _Table:
    """The lines of a ledger, while it is locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        found = [_line(place, data) for place in range(len(data) // _LINE_BYTES)]
        self.lines = [line for line in found if line is not None and _is_alive(line.pid, line.started)]
        """Of processes that are alive."""

    def find(self, ticket: int) -> _Line | None:
        """A line of this process."""
        mine = (line for line in self.lines if line.pid == os.getpid())
        return next((line for line in mine if line.ticket == ticket), None)

    def enter(self, size_bytes: int, *, is_granted: bool) -> int:
        """Write a new line for this process, and give its ticket."""
        taken = {line.place for line in self.lines}
        place = next(place for place in range(len(taken) + 1) if place not in taken)
        ticket = 1 + max((line.ticket for line in self.lines), default=0)
        self.write(_Line(place, ticket, os.getpid(), _started(os.getpid()), is_granted, size_bytes))
        return ticket

    def write(self, line: _Line) -> None:
        os.pwrite(self._descriptor, line.data, line.place * _LINE_BYTES)

    def erase(self, line: _Line) -> None:
        os.pwrite(self._descriptor, b"\n".rjust(_LINE_BYTES), line.place * _LINE_BYTES)


def _line(place: int, data: bytes) -> _Line | None:
    """The reservation at this place; None: the line is free."""
    try:
        words = data[place * _LINE_BYTES : (place + 1) * _LINE_BYTES].split()
        ticket, pid, started, is_granted, size_bytes = map(int, words)
    except ValueError:
        return None
    return _Line(place, ticket, pid, started, bool(is_granted), size_bytes)


class Reservation:
    """Memory that a process has reserved, until it releases it or ends."""

    def __init__(self, ledger: MemoryLedger, ticket: int, size_bytes: int) -> None:
        self._ledger, self._ticket = ledger, ticket
        self.size_bytes = size_bytes
        self._is_over = False

    def enlarge(self, size_bytes: int) -> bool:
        """Reserve this much if that is possible at once; whether it is reserved now."""
        if size_bytes > self.size_bytes and not self._ledger.enlarge(self._ticket, size_bytes):
            return False
        self.size_bytes = max(size_bytes, self.size_bytes)
        return True

    def release(self) -> None:
        """Give up the reservation: the memory has been freed. A second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._ledger.erase(self._ticket)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class MemoryLedger:
    """The ledger of one memory, named the same in every process of this machine."""

    def __init__(self, name: str, capacity: Callable[[], int], folder: Path | None = None) -> None:
        """``capacity``: how much can be reserved in all at this moment."""
        self._folder = folder or _SHARED_FOLDER
        self._path = self._folder / f"{name}.memory"
        self._capacity = capacity

    def reserve(self, size_bytes: int, gives_up: Callable[[], bool] = lambda: False) -> Reservation | None:
        """Wait until this much can be reserved. None: the caller gave up. It must hold no reservation, nor anything
        that another process may want before it releases its own.
        """
        with self._locked() as table:
            ticket = table.enter(size_bytes, is_granted=False)
        try:
            while not gives_up():
                with self._locked() as table:
                    if table.find(ticket) is None:  # somebody removed the file
                        ticket = table.enter(size_bytes, is_granted=False)
                    elif self._grant(table, ticket):
                        return Reservation(self, ticket, size_bytes)
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            self.erase(ticket)
            raise
        self.erase(ticket)
        return None

    def try_reserve(self, size_bytes: int) -> Reservation | None:
        """The same without waiting. None: others hold too much, or wait already."""
        with self._locked() as table:
            if not self._fits(table, None, size_bytes) or any(not line.is_granted for line in table.lines):
                return None
            ticket = table.enter(size_bytes, is_granted=True)
        return Reservation(self, ticket, size_bytes)

    def is_wanted(self) -> bool:
        """Whether somebody waits for memory."""
        with self._locked() as table:
            return any(not line.is_granted for line in table.lines)

    def enlarge(self, ticket: int, size_bytes: int) -> bool:
        """Used by :class:`Reservation`. Whether the size was granted."""
        with self._locked() as table:
            line = table.find(ticket)
            if line is None or not self._fits(table, ticket, size_bytes):
                return False
            table.write(line._replace(size_bytes=size_bytes))
        return True

    def erase(self, ticket: int) -> None:
        """Used by :class:`Reservation`. Free the line."""
        with self._locked() as table:
            line = table.find(ticket)
            if line is not None:
                table.erase(line)

    def _grant(self, table: _Table, ticket: int) -> bool:
        """Whether a reservation that waits is granted now."""
        line = table.find(ticket)
        is_first = all(other.is_granted or other.ticket >= ticket for other in table.lines)
        if line is None or not is_first or not self._fits(table, ticket, line.size_bytes):
            return False
        table.write(line._replace(is_granted=True))
        return True

    def _fits(self, table: _Table, ticket: int | None, size_bytes: int) -> bool:
        others = sum(line.size_bytes for line in table.lines if line.is_granted and line.ticket != ticket)
        return others == 0 or others + size_bytes <= self._capacity()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[_Table]:
        """The locked table. The file is opened each time, so that the lock also separates threads of one process."""
        descriptor = _opened(self._folder, self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield _Table(descriptor)
        finally:
            os.close(descriptor)


def _opened(folder: Path, path: Path) -> int:
    """Open the file, which every user may write. O_CREAT only on a new file: in a sticky folder Linux may refuse it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # somebody was faster, and opens it to all users at once
        time.sleep(_LOOK_SECONDS)
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)
    return descriptor


def _is_alive(pid: int, started: int) -> bool:
    """Whether this process still runs, and no other one has got its number."""
    try:
        return _started(pid) == started
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return _answers_to_signals(pid)  # /proc may hide processes of other users, or their files (hidepid=1)


def _started(pid: int) -> int:
    """When a process started, in the system's ticks; 0: it has ended and is a zombie."""
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return 0 if words[0] in "ZX" else int(words[19])


def _answers_to_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
