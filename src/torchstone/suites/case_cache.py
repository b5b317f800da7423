"""Keeps cases that are slow to generate in the user's cache folder, one file per operator.

It also defines the types that are kept. The source of cases (such as OpInfo) has entries, each with samples that call
operators. An `Index` tells which entries call which operators. A `Part` holds the cases of one operator from all
entries. Any set of parts makes a `Catalogue`, with its cases in the order of the whole source. An `Exclusion` is a
call of which no case can be made. A file that cannot be read counts as absent.
"""

from __future__ import annotations

import contextlib
import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from torchstone.atomic_files import cache_folder, write_atomically
from torchstone.schema import Case, content_key

T = TypeVar("T")
Progress = Callable[[int, int, str], None]
"""Receives the number of steps done, their total, and what they are."""


class Exclusion(msgspec.Struct, frozen=True):
    """Calls that are left out, and why."""

    operator: str
    reason: str
    source: str = ""
    """Where they come from: the name of a sample, a model, a file."""
    count: int = 1
    needed_bytes: int = 0
    """Free memory that one of them needs to become a case; 0: memory is not the reason."""


class Catalogue(msgspec.Struct, frozen=True):
    """The cases that were found in one source, and the calls left out."""

    cases: tuple[Case, ...]
    exclusions: tuple[Exclusion, ...] = ()


class PlacedCase(msgspec.Struct, frozen=True):
    """A case, and its position in the catalogue of the whole source."""

    case: Case
    place: tuple[int, int, int]
    """Cases are sorted by it: 0, or 1 for a large variant; number of the entry; number of the call in the entry."""


class Part(msgspec.Struct, frozen=True):
    """The cases of one operator from all entries, and the calls left out."""

    operator: str
    cases: tuple[PlacedCase, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()


class _CountedPart(msgspec.Struct, frozen=True):
    """A part whose cases are counted and not decoded."""

    operator: str
    cases: tuple[msgspec.Raw, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """One entry of the source."""

    name: str
    number: int
    """Its position in the source, from 0."""
    operators: tuple[str, ...] = ()
    """The overloads that its samples call."""
    exclusions: tuple[Exclusion, ...] = ()
    """Samples that failed: they belong to the entry and not to an operator."""


class Index(msgspec.Struct, frozen=True):
    """The entries of a source, in its order."""

    entries: tuple[Entry, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """Every overload that an entry calls, each once."""
        return tuple(dict.fromkeys(operator for entry in self.entries for operator in entry.operators))


class Prepared(msgspec.Struct, frozen=True):
    """The index, and the parts that were asked for."""

    index: Index
    parts: dict[str, Part]
    """By operator."""


def merged(exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """Exclusions of the same operator with the same reason and source, counted together."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for item in exclusions:
        counts[item.operator, item.source, item.reason] += item.count
    return tuple(Exclusion(operator, reason, source, n) for (operator, source, reason), n in sorted(counts.items()))


def assembled(parts: Iterable[Part], entries: Iterable[Entry]) -> Catalogue:
    """The catalogue of these operators, with the samples that failed in these entries."""
    listed = tuple(parts)
    placed = sorted((item for part in listed for item in part.cases), key=lambda item: item.place)
    failed = [item for entry in entries for item in entry.exclusions]
    left_out = merged([*(item for part in listed for item in part.exclusions), *failed])
    return Catalogue(tuple(item.case for item in placed), left_out)


class KeptCatalogue:
    """A folder with the index and a file for each part. Its name is a hash of all that the catalogue depends on."""

    def __init__(self, kind: str, *depends_on: str | int) -> None:
        folder = cache_folder("catalogues")
        self.folder = None if folder is None else folder / f"{kind}-{content_key(kind, *depends_on)}"

    def index(self) -> Index | None:
        """The index. None: the file is absent or cannot be read."""
        return self._read("index", Index)

    def part(self, operator: str) -> Part | None:
        """The part of an operator. None: absent, unreadable, or of another operator (file systems may ignore case)."""
        found = self._read(f"part-{operator}", Part)
        return found if found is not None and found.operator == operator else None

    def case_counts(self) -> dict[str, int] | None:
        """Operator -> number of its cases, without decoding them. None: some operator is not prepared yet."""
        index = self.index()
        parts = None if index is None else [self._read(f"part-{name}", _CountedPart) for name in index.operators]
        if parts is None or None in parts:
            return None
        return {part.operator: len(part.cases) for part in parts if part is not None}

    def write(self, prepared: Prepared) -> None:
        """Write the files. If the folder cannot be written to, the catalogue is made again the next time."""
        with contextlib.suppress(OSError):
            for operator, part in prepared.parts.items():
                self._write(f"part-{operator}", part)
            self._write("index", prepared.index)

    def path(self, name: str) -> Path | None:
        """The file of that name: ``index``, or ``part-`` and an operator."""
        return None if self.folder is None else self.folder / f"{name}.msgpack.gz"

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.path(name)
        if path is None:
            return None
        try:
            return msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=kind)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            return None

    def _write(self, name: str, content: Index | Part) -> None:
        path = self.path(name)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, gzip.compress(msgspec.msgpack.encode(content), compresslevel=4, mtime=0))
