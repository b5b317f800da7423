"""Reserves device or host memory in a ledger, so that processes of this machine that need much of it take turns.

A process reserves memory before it allocates it, and waits until the reservation fits beside those of other processes.
The ledger counts reservations, not memory. Three rules prevent deadlocks and make it fair:

- A reservation is granted as a whole, in the order of requests. Smaller ones do not overtake a large one.
- No process waits for memory while it holds a reservation. It may enlarge its reservation only if that fits at once.
- If no other reservation is granted, the first waiting one is granted, even if it is larger than the capacity. Its
  caller must check whether it fits.

The ledger is a file with a line of fixed length for each reservation. A process writes one line at a time, under a lock
(``flock``), so that a killed process leaves no half-written line. Lines of processes that have ended are reused.
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
"""Folder of the ledgers. Not TMPDIR, which differs between users and jobs: all must use the same file."""
_LINE_BYTES = 128
"""Length of a line. It divides the size of a page, so that no line crosses a page boundary or is half written."""
_POLL_SECONDS = 0.05
"""Time between two checks whether a waiting reservation can be granted."""
_UNRESERVED_PARTS = 8
"""One eighth of a device's memory is never reserved: it is for contexts of processes, and for small allocations that
need no reservation."""
_SMALL_PARTS = 64
"""A process may allocate 1/64 of a memory without a reservation."""


def small_bytes(total_bytes: int) -> int:
    """Bytes of a memory of this size that a process may allocate without a reservation."""
    return total_bytes // _SMALL_PARTS


def device_capacity(total_bytes: int) -> int:
    """Bytes of a device's memory that can be reserved."""
    return total_bytes - total_bytes // _UNRESERVED_PARTS


def device_ledger(device_name: str, total_bytes: int) -> MemoryLedger:
    """The ledger of a device. ``device_name`` must be the same in every process of this machine."""
    return MemoryLedger(device_name, lambda: device_capacity(total_bytes))


def host_ledger() -> MemoryLedger:
    """The ledger of the host's memory. Its capacity is a share of the memory that is free at the time."""
    return MemoryLedger("host", usable_host_bytes)


class _Line(NamedTuple):
    """One reservation, granted or waiting."""

    place: int
    """Number of the line in the file."""
    ticket: int
    """Number that grows with every reservation: a lower one was requested earlier."""
    pid: int
    started: int
    """When the process started, because another process may get the same pid later."""
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
        """Lines of processes that are alive."""

    def find(self, ticket: int) -> _Line | None:
        """This process's line with this ticket; None: there is none."""
        mine = (line for line in self.lines if line.pid == os.getpid())
        return next((line for line in mine if line.ticket == ticket), None)

    def enter(self, size_bytes: int, *, is_granted: bool) -> int:
        """Write a new line for this process, and return its ticket."""
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
    """The reservation in this line of the file; None: the line is free."""
    try:
        words = data[place * _LINE_BYTES : (place + 1) * _LINE_BYTES].split()
        ticket, pid, started, is_granted, size_bytes = map(int, words)
    except ValueError:
        return None
    return _Line(place, ticket, pid, started, bool(is_granted), size_bytes)


class Reservation:
    """A process's reservation of memory. It lasts until the process releases it or ends."""

    def __init__(self, ledger: MemoryLedger, ticket: int, size_bytes: int) -> None:
        self._ledger, self._ticket = ledger, ticket
        self.size_bytes = size_bytes
        self._is_over = False

    def enlarge(self, size_bytes: int) -> bool:
        """Enlarge the reservation to this size if that is possible at once; return whether it has this size now."""
        if size_bytes > self.size_bytes and not self._ledger.enlarge(self._ticket, size_bytes):
            return False
        self.size_bytes = max(size_bytes, self.size_bytes)
        return True

    def release(self) -> None:
        """End the reservation, after the memory was freed. A second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._ledger.erase(self._ticket)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class MemoryLedger:
    """The ledger of one memory. Its name must be the same in every process of this machine."""

    def __init__(self, name: str, capacity: Callable[[], int], folder: Path | None = None) -> None:
        """``capacity``: returns how many bytes can be reserved in all at this moment."""
        self._folder = folder or _SHARED_FOLDER
        self._path = self._folder / f"{name}.memory"
        self._capacity = capacity

    def reserve(self, size_bytes: int, gives_up: Callable[[], bool] = lambda: False) -> Reservation | None:
        """Wait until this many bytes can be reserved. None: ``gives_up`` returned True before that.

        The caller must hold no reservation, and nothing else that another process may need before it releases its own.
        """
        with self._locked() as table:
            ticket = table.enter(size_bytes, is_granted=False)
        try:
            while not gives_up():
                with self._locked() as table:
                    if table.find(ticket) is None:  # the file was removed
                        ticket = table.enter(size_bytes, is_granted=False)
                    elif self._grant(table, ticket):
                        return Reservation(self, ticket, size_bytes)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self.erase(ticket)
            raise
        self.erase(ticket)
        return None

    def try_reserve(self, size_bytes: int) -> Reservation | None:
        """Reserve without waiting. None: others hold too much, or wait already."""
        with self._locked() as table:
            if not self._fits(table, None, size_bytes) or any(not line.is_granted for line in table.lines):
                return None
            ticket = table.enter(size_bytes, is_granted=True)
        return Reservation(self, ticket, size_bytes)

    def is_wanted(self) -> bool:
        """Whether a process waits for memory."""
        with self._locked() as table:
            return any(not line.is_granted for line in table.lines)

    def enlarge(self, ticket: int, size_bytes: int) -> bool:
        """Enlarge a reservation to this size, for :class:`Reservation`; return whether that was granted."""
        with self._locked() as table:
            line = table.find(ticket)
            if line is None or not self._fits(table, ticket, size_bytes):
                return False
            table.write(line._replace(size_bytes=size_bytes))
        return True

    def erase(self, ticket: int) -> None:
        """Free the line of a reservation, for :class:`Reservation`."""
        with self._locked() as table:
            line = table.find(ticket)
            if line is not None:
                table.erase(line)

    def _grant(self, table: _Table, ticket: int) -> bool:
        """Grant a waiting reservation if it is the first one and fits; return whether it was granted."""
        line = table.find(ticket)
        is_first = all(other.is_granted or other.ticket >= ticket for other in table.lines)
        if line is None or not is_first or not self._fits(table, ticket, line.size_bytes):
            return False
        table.write(line._replace(is_granted=True))
        return True

    def _fits(self, table: _Table, ticket: int | None, size_bytes: int) -> bool:
        """Whether the size fits beside the other granted reservations. Any size fits if there is no other."""
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
    except FileExistsError:  # another process was faster, and is about to allow all users to write
        time.sleep(_POLL_SECONDS)
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)
    return descriptor


def _is_alive(pid: int, started: int) -> bool:
    """Whether this process still runs, and its pid does not belong to another process now."""
    try:
        return _started(pid) == started
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return _answers_to_signals(pid)  # /proc may hide processes of other users, or their files (hidepid=1)


def _started(pid: int) -> int:
    """When a process started, in the system's ticks; 0: it has ended and is a zombie."""
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return 0 if words[0] in "ZX" else int(words[19])


def _answers_to_signals(pid: int) -> bool:
    """Whether a process with this pid exists, by sending it no signal."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
