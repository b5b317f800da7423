"""What C++ and CUDA sources are called, and which of their functions is the kernel. Text is read, nothing is built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from torchstone.schema import Language, SourceFile

SOURCES: dict[str, Language] = {".cu": "cuda", ".cpp": "cpp"}
"""Suffixes of files that are compiled, the one that decides about the language first."""
HEADERS = (".h", ".hpp", ".cuh")


def is_native(name: str) -> bool:
    """Whether a file of this name is compiled rather than imported."""
    return PurePath(name).suffix in SOURCES


def language_of(names: Iterable[str]) -> Language:
    """`cuda` if any of the files is."""
    suffixes = {PurePath(name).suffix for name in names}
    return next(language for suffix, language in SOURCES.items() if suffix in suffixes)


def entry_in(files: Iterable[SourceFile], names: Sequence[str]) -> str:
    """The first of the names that the files declare, define or call; the first of all if none is there."""
    text = "\n".join(file.text for file in files)
    return next((name for name in names if mentions(text, name)), names[0])


def mentions(text: str, function: str) -> bool:
    """Whether the text has the function's name with a parenthesis behind it."""
    return re.search(rf"(?<![\w:.>]){re.escape(function)}\s*\(", text) is not None
