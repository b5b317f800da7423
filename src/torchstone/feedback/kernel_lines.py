"""Finds the line of the kernel's source that a traceback or a compiler's message is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchstone.schema import SourceFiles

_FRAME = re.compile(r'^ *File "(?P<file>[^"]*)", line (?P<line>\d+)')
_FOREIGN_FILE = re.compile(r"/torchstone/|/site-packages/|/lib/python|^<")
_COMPILER_LOCATION = re.compile(r"(?P<file>[\w./-]+\.(?:cpp|cc|cxx|cu|cuh|h|hpp|c))(?:[:(])(?P<line>\d+)")
"""File and line in messages of g++ and clang (``kernel.cpp:12:3: error``) and of nvcc (``kernel.cu(12): error``)."""


class SourceLine(NamedTuple):
    """A line of the kernel's source. ``line`` is None if it is not known."""

    file: str = ""
    line: int | None = None
    text: str = ""


def raised_at(trace: str, source: SourceFiles | None) -> SourceLine:
    """The source line of the innermost traceback frame in the kernel's own code."""
    lines = trace.splitlines()
    frames = [(index, found) for index, line in enumerate(lines) if (found := _FRAME.match(line))]
    own = [(index, found) for index, found in frames if not _FOREIGN_FILE.search(found["file"])]
    if not own:
        return SourceLine()
    index, found = own[-1]
    return _source_line(found["file"], int(found["line"]), source, next(_code_after(lines, index), ""))


def compiler_error_at(message: str, source: SourceFiles | None) -> SourceLine:
    """The first line of the kernel's own files that a compiler names."""
    own = {file.name for file in source.files} if source is not None else None
    for found in _COMPILER_LOCATION.finditer(message):
        if own is None or found["file"].rpartition("/")[2] in own:
            return _source_line(found["file"], int(found["line"]), source, "")
    return SourceLine()


def exception_lines(trace: str) -> list[str]:
    """The lines of the exception's own message: those after the last frame and its source line."""
    lines = trace.rstrip("\n").splitlines()
    last = max((index for index, line in enumerate(lines) if _FRAME.match(line)), default=-1)
    following = (index for index in range(last + 1, len(lines)) if lines[index] and not lines[index].startswith(" "))
    begin = next(following, None)
    return [] if begin is None else lines[begin:]


def _code_after(lines: Sequence[str], index: int) -> Iterator[str]:
    if index + 1 < len(lines) and lines[index + 1].startswith("    "):
        yield lines[index + 1].strip()


def _source_line(file: str, line: int, source: SourceFiles | None, text: str) -> SourceLine:
    """The line with its text from ``source``, or else ``text``. The file appears without the worker's folder."""
    name = file.rpartition("/")[2]
    for known in source.files if source is not None else ():
        written = known.text.splitlines()
        if known.name.rpartition("/")[2] == name and 0 < line <= len(written):
            return SourceLine(name, line, written[line - 1].strip())
    return SourceLine(name, line, text)
