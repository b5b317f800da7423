"""Finds the line of the kernel's source that a traceback or a compiler's message is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchstone.schema import SourceFiles

_FRAME = re.compile(r'^ *File "(?P<file>[^"]*)", line (?P<line>\d+)')
_NOT_THE_KERNELS = re.compile(r"/torchstone/|/site-packages/|/lib/python|^<")
_COMPILERS = re.compile(r"(?P<file>[\w./-]+\.(?:cpp|cc|cxx|cu|cuh|h|hpp|c))(?:[:(])(?P<line>\d+)")
"""``kernel.cpp:12:3: error`` of g++ and clang, ``kernel.cu(12): error`` of nvcc."""


class Place(NamedTuple):
    """A line of the kernel's source; ``line`` is None where it is not known."""

    file: str = ""
    line: int | None = None
    text: str = ""


def raised_at(trace: str, source: SourceFiles | None) -> Place:
    """The innermost frame that is the kernel's own."""
    lines = trace.splitlines()
    frames = [(place, found) for place, line in enumerate(lines) if (found := _FRAME.match(line))]
    own = [(place, found) for place, found in frames if not _NOT_THE_KERNELS.search(found["file"])]
    if not own:
        return Place()
    place, found = own[-1]
    return _place(found["file"], int(found["line"]), source, next(_code_after(lines, place), ""))


def complained_at(message: str, source: SourceFiles | None) -> Place:
    """The first line of the kernel's own files that a compiler names."""
    own = {file.name for file in source.files} if source is not None else None
    for found in _COMPILERS.finditer(message):
        if own is None or found["file"].rpartition("/")[2] in own:
            return _place(found["file"], int(found["line"]), source, "")
    return Place()


def exception_lines(trace: str) -> list[str]:
    """What the exception itself says: the lines below the last frame and its code."""
    lines = trace.rstrip("\n").splitlines()
    last = max((place for place, line in enumerate(lines) if _FRAME.match(line)), default=-1)
    following = (place for place in range(last + 1, len(lines)) if lines[place] and not lines[place].startswith(" "))
    begin = next(following, None)
    return [] if begin is None else lines[begin:]


def _code_after(lines: Sequence[str], place: int) -> Iterator[str]:
    if place + 1 < len(lines) and lines[place + 1].startswith("    "):
        yield lines[place + 1].strip()


def _place(file: str, line: int, source: SourceFiles | None, text: str) -> Place:
    """The file by its own name: where the worker keeps it says nothing to its author."""
    name = file.rpartition("/")[2]
    for known in source.files if source is not None else ():
        written = known.text.splitlines()
        if known.name.rpartition("/")[2] == name and 0 < line <= len(written):
            return Place(name, line, written[line - 1].strip())
    return Place(name, line, text)
