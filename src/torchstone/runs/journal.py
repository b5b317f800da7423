"""Writes and reads the journal of a run: one JSON line per result, written at once and synced to the disk soon after.

Separate from `folder` because only the loss of this file would lose results. The code keeps the journal intact when the
process, the disk or the power fails; it knows no plans and reports. A `RecordKind` describes the lines: judged cases
(records), or results of other commands.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

import msgspec

from torchstone.atomic_files import BackgroundSync, sync_folder, write_atomically
from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import FORMAT_VERSION, decode, encode

RECORDS = "records.jsonl"
SUPERSEDED = "superseded.jsonl"
LOCK = "records.lock"

_PATIENCE_SECONDS = 2.0
"""Longest wait for the lock if its owner has ended but processes that the owner started still hold it."""


R = TypeVar("R")


class RecordKind(NamedTuple, Generic[R]):
    """The type of a journal's lines, and which of them a resumed run keeps."""

    name: str
    """The value of the field `kind` in every line; lines without that field are `case`."""
    type: type[R]
    key: Callable[[R], str]
    """Returns a record's key. Of several records with the same key only the last one counts."""
    tried_again: Callable[[R], bool]
    """Returns whether a resumed run judges a record's job again."""


class Line(NamedTuple, Generic[R]):
    """One line of the file as bytes, and the decoded record."""

    text: bytes
    record: R


class Contents(NamedTuple, Generic[R]):
    """The content of a journal."""

    lines: tuple[Line[R], ...]
    whole_bytes: int
    """Length of the file without an incomplete last line."""
    note: str
    """A message on damage at the end of the file; empty: there is none."""

    @property
    def records(self) -> tuple[R, ...]:
        return tuple(line.record for line in self.lines)


class _Header(msgspec.Struct):
    """The part of a line that every format version shares."""

    format_version: int
    kind: str = "case"


_READERS = {
    "case": "torchstone show",
    "pair": "torchstone pairs show",
    "sweep": "torchstone sweep --resume",
    "attempt": "torchstone generate report",
}
"""Kind of record -> the command that shows such a run."""


def read(path: Path, kind: RecordKind[R]) -> Contents[R]:
    """Read a journal. An incomplete last line (the process died while writing it) is left out and noted."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Contents((), 0, "")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    texts = data.split(b"\n")
    if texts[-1] == b"":
        texts.pop()
    lines: list[Line[R]] = []
    whole = 0
    for number, text in enumerate(texts, start=1):
        record = _record(path, number, text, kind)
        if record is None:
            if number == len(texts):
                return Contents(tuple(lines), whole, f"{path}:{number}: the last line was torn and is left out.")
            raise InfrastructureError(
                f"{path}:{number} is not a record, and it is not the last line: the file was damaged. "
                "Restore it from a copy or delete that line, then use --resume."
            )
        lines.append(Line(text, record))
        whole += len(text) + 1
    return Contents(tuple(lines), whole, "")


def _record(path: Path, number: int, text: bytes, kind: RecordKind[R]) -> R | None:
    """The line's record, or None if it is not one."""
    try:
        header = decode(text, _Header)
        version = header.format_version
        if header.kind != kind.name and header.kind in _READERS:
            raise UsageError(
                f"{path} belongs to another kind of run: its records are of kind '{header.kind}', not '{kind.name}'. "
                f"Use '{_READERS[header.kind]}'."
            )
        if version > FORMAT_VERSION:
            raise UsageError(
                f"{path}:{number} has record format {version}; this torchstone reads up to {FORMAT_VERSION}. "
                "Use the newer torchstone that wrote it."
            )
        return decode(text, kind.type)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Journal(Generic[R]):
    """A journal open for writing by this process alone."""

    def __init__(self, folder: Path, kind: RecordKind[R]) -> None:
        """Take the lock, read the file, and cut off an incomplete last line."""
        self.path = folder / RECORDS
        self._kind = kind
        self._lock = _take_lock(folder / LOCK, folder)
        try:
            contents = read(self.path, kind)
            self._lines = list(contents.lines)
            self.note = contents.note
            self._descriptor = self._open_at(contents.whole_bytes)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def records(self) -> tuple[R, ...]:
        """All records of the file, in the order of writing."""
        return tuple(line.record for line in self._lines)

    def append(self, record: R) -> None:
        """Write one line. It survives the end of this process, and after the next sync also a power cut."""
        text = encode(record)
        try:
            written = os.write(self._descriptor, text + b"\n")
            if written != len(text) + 1:
                raise OSError(0, "the disk took only part of the line")
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._bytes)
            raise InfrastructureError(
                f"cannot append to {self.path}: {error.strerror}. Free the disk and use --resume; "
                f"{len(self._lines)} records are safe."
            ) from error
        self._bytes += written
        self._lines.append(Line(text, record))
        try:
            self._synced.wrote()
        except OSError as error:
            raise self._not_kept(error) from error

    def compact(self, planned: Collection[str], *, tries_again: bool = True) -> int:
        """Move lines that a resumed run does not count to ``superseded.jsonl``; return the number of moved lines.

        These are records that are no longer planned, and all but the last of several with one key. With
        ``tries_again``, records of cases that are judged again are moved, too.
        """
        key = self._kind.key
        lines = [line for line in self._lines if not (tries_again and self._kind.tried_again(line.record))]
        last = {key(line.record): line for line in lines}
        kept = [line for line in self._lines if last.get(key(line.record)) is line and key(line.record) in planned]
        kept_ids = {id(line) for line in kept}
        moved = [line for line in self._lines if id(line) not in kept_ids]
        if not moved:
            return 0
        # First add them to the other file: after a crash in between they are in both files, never in none.
        _add_lines(self.path.with_name(SUPERSEDED), [line.text for line in moved])
        data = b"".join(line.text + b"\n" for line in kept)
        write_atomically(self.path, data)
        self._close_file()
        self._lines = kept
        self._descriptor = self._open_at(len(data))
        return len(moved)

    def close(self) -> None:
        """Wait for the disk, then release the lock."""
        try:
            self._close_file()
        except OSError as error:
            raise self._not_kept(error) from error
        finally:
            os.close(self._lock)

    def _not_kept(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"the disk did not store all of {self.path}: {error.strerror}. Check the disk, then use --resume."
        )

    def _close_file(self) -> None:
        try:
            self._synced.close()
        finally:
            os.close(self._descriptor)

    def _open_at(self, whole_bytes: int) -> int:
        """Open for appending after the first `whole_bytes`, and cut off the rest."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(descriptor).st_size
        if size == whole_bytes - 1:
            os.write(descriptor, b"\n")  # only the newline of a complete last line was lost
        elif size != whole_bytes:
            os.ftruncate(descriptor, whole_bytes)
        os.fsync(descriptor)
        sync_folder(self.path.parent)
        self._bytes = whole_bytes
        self._synced = BackgroundSync(descriptor)
        return descriptor


def _add_lines(path: Path, texts: list[bytes]) -> None:
    """Append lines to a file in one step, except those that it has already."""
    old = path.read_bytes() if path.exists() else b""
    known = set(old.split(b"\n"))
    new = b"".join(text + b"\n" for text in dict.fromkeys(texts) if text not in known)
    if new:
        write_atomically(path, old + new)


def _take_lock(path: Path, folder: Path) -> int:
    """Take the folder's lock and return its open descriptor. The system releases the lock when the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in _tries():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if _lives(holder):
                break
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor
    os.close(descriptor)
    raise UsageError(
        f"run folder {folder} is being written by process {holder}. Wait for it, stop it, or choose another --run-id."
    )


def _tries() -> Iterator[None]:
    """Yield at least once, then every 50 ms until :data:`_PATIENCE_SECONDS` are over."""
    until = time.monotonic() + _PATIENCE_SECONDS
    yield
    while time.monotonic() < until:
        time.sleep(0.05)
        yield


def _lives(pid: str) -> bool:
    return pid.isdecimal() and Path("/proc", pid).exists()
