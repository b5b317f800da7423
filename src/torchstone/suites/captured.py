"""Suite `captured`: operator calls recorded from a user's program, in a file that this module writes and reads.

The file has JSON lines: first a head, then in each line a case, or a call that is left out with the reason. The cases
are ready to be judged: :mod:`torchstone.suites.program_capture` has found values for them where the program ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from torchstone.atomic_files import write_atomically
from torchstone.errors import UsageError
from torchstone.schema import Case, encode, tensors_of
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.case_cache import Exclusion
from torchstone.suites.device_only_operators import reason_against
from torchstone.suites.fixed_size_layouts import mark_other_layouts

T = TypeVar("T")

SUITE = "captured"
FORMAT = 1
"""Format version of the file. It is raised when an older Torchstone could misread a new file."""


class Head(msgspec.Struct, frozen=True):
    """The first line of a file."""

    format: int
    torch: str
    calls: int
    """All calls that were seen, those left out included."""


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of the file. One of its fields is set."""

    captured: Head | None = None
    case: Case | None = None
    exclusion: Exclusion | None = None


class Captured(msgspec.Struct, frozen=True):
    """The content of a file."""

    head: Head
    cases: tuple[Case, ...]
    exclusions: tuple[Exclusion, ...] = ()


def write_captured(path: Path, captured: Captured) -> None:
    """Write the whole file in one step."""
    lines = [
        _Line(captured=captured.head),
        *(_Line(case=case) for case in captured.cases),
        *(_Line(exclusion=exclusion) for exclusion in captured.exclusions),
    ]
    write_atomically(path, b"".join(encode(line) + b"\n" for line in lines))


def read_captured(path: Path) -> Captured:
    """Read a file. Raises a UsageError that names the line if the file is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"source '{path}' cannot be read: {error}.") from error
    lines = [_decoded(path, number, text) for number, text in enumerate(data.split(b"\n"), start=1) if text.strip()]
    head = lines[0].captured if lines else None
    if head is None:
        raise UsageError(f"{path}, line 1: expected the head of a file that 'torchstone capture' has written.")
    if head.format != FORMAT:
        raise UsageError(f"{path} has format {head.format}, this version reads {FORMAT}. Capture the program again.")
    return Captured(head, tuple(_present(line.case for line in lines)), tuple(_present(x.exclusion for x in lines)))


class CapturedSuite:
    """Operator calls of your own program, recorded by 'torchstone capture': --source FILE."""

    name: ClassVar[str] = SUITE
    uses: ClassVar[frozenset[str]] = frozenset({"source"})

    def __init__(self) -> None:
        self._files: dict[str, Captured] = {}

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, in the order of their first calls. With dtypes: cases that use one of them."""
        return tuple(
            mark_other_layouts(case)
            for case in self._read(query).cases
            if selects(query, case.operator)
            and not reason_against(case.operator, query.device_type)
            and (query.dtypes is None or any(tensor.dtype in query.dtypes for tensor in tensors_of(case)))
        )

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many calls of the requested operators did not become cases, by reason."""
        found = self._read(query)
        reasons: Counter[str] = Counter()
        for exclusion in found.exclusions:
            if selects(query, exclusion.operator):
                reasons[f"{exclusion.operator}: {exclusion.reason}"] += exclusion.count
        for case in found.cases:
            reason = reason_against(case.operator, query.device_type)
            if reason and selects(query, case.operator):
                reasons[reason] += max(1, case.occurrences)
        return dict(reasons.most_common())

    def _read(self, query: CaseQuery) -> Captured:
        if query.source is None:
            raise UsageError(f"suite '{SUITE}' needs --source FILE, a file that 'torchstone capture' has written.")
        if query.source not in self._files:
            self._files[query.source] = read_captured(Path(query.source))
        return self._files[query.source]


_LINE = msgspec.json.Decoder(_Line)


def _decoded(path: Path, number: int, text: bytes) -> _Line:
    try:
        return _LINE.decode(text)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}, line {number}: {error}.") from error


def _present(items: Iterable[T | None]) -> Iterable[T]:
    return (item for item in items if item is not None)
