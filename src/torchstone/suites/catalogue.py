"""Cases that take long to find, found once and kept in the user's cache.

A catalogue is named by all that it depends on. Whatever is wrong with its file makes it as good as absent.
"""

from __future__ import annotations

import contextlib
import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from torchstone.durable import cache_folder, write_atomically
from torchstone.schema import Case, content_key

T = TypeVar("T")
Progress = Callable[[int, int, str], None]
"""How many steps are done, of how many, and what they are."""


class Exclusion(msgspec.Struct, frozen=True):
    """Calls that are no cases, and why."""

    operator: str
    reason: str
    source: str = ""
    """Where they come from: the name of a sample, a model, a file."""
    count: int = 1


class Catalogue(msgspec.Struct, frozen=True):
    """What was found in one source."""

    cases: tuple[Case, ...]
    exclusions: tuple[Exclusion, ...] = ()


class _OperatorOfCase(msgspec.Struct, frozen=True):
    operator: str


class _Operators(msgspec.Struct, frozen=True):
    """A catalogue of which only the names of operators are read."""

    cases: tuple[_OperatorOfCase, ...]


def merged(exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """The same operator with the same reason from the same source, counted together."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for item in exclusions:
        counts[item.operator, item.source, item.reason] += item.count
    return tuple(Exclusion(operator, reason, source, n) for (operator, source, reason), n in sorted(counts.items()))


class KeptCatalogue:
    """One file, named by what the catalogue depends on."""

    def __init__(self, kind: str, *depends_on: str | int) -> None:
        folder = cache_folder("catalogues")
        self.path = None if folder is None else folder / f"{kind}-{content_key(kind, *depends_on)}.msgpack.gz"

    def read(self) -> Catalogue | None:
        """None: nothing there, or not readable."""
        return self._decoded(Catalogue)

    def _decoded(self, kind: type[T]) -> T | None:
        if self.path is None:
            return None
        try:
            return msgspec.msgpack.decode(gzip.decompress(self.path.read_bytes()), type=kind)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            return None

    def operators(self) -> tuple[str, ...] | None:
        """The operator of each case, for who only counts: far quicker than reading the cases. None as for `read`."""
        found = self._decoded(_Operators)
        return None if found is None else tuple(case.operator for case in found.cases)

    def write(self, catalogue: Catalogue) -> None:
        """A folder that cannot be written to is none: the catalogue is then built again the next time."""
        if self.path is None:
            return
        data = gzip.compress(msgspec.msgpack.encode(catalogue), compresslevel=4, mtime=0)
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data)
