"""Converts operator names to names of kernel folders and back, and orders a folder's attempts by their file names.

A folder named after an overload writes the dot as two underscores: `add.Tensor` is `add__Tensor`, the in-place
`add_.Tensor` is `add___Tensor`. Names are read from the right: everything before the last two underscores is the
operator, its own trailing underscores included. A folder without an overload (`relu`, `add_`, `__and__`)
names the operator alone. The `aten` namespace is never written.

Limit: an overload that itself begins with an underscore or holds two in a row would not be read back; `aten` has
none. An operator with two underscores inside its name (`linalg__powsum`) can only be named with its overload.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from torchstone.backends.native_source import SOURCES

KERNEL_SUFFIXES = (".py", *SOURCES)
"""Suffixes of files that may be an attempt at the kernel, the preferred one first."""

_NAME = re.compile(r"_*[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def folder_name(operator: str) -> str:
    """`aten.add.Tensor` -> `add__Tensor`; without an overload, `aten.add` -> `add`."""
    return operator.removeprefix("aten.").replace(".", "__")


def operator_name(folder: str) -> str | None:
    """`add__Tensor` -> `aten.add.Tensor`, `add` -> `aten.add`; None if the folder's name cannot be an operator's."""
    base, mark, overload = folder.rpartition("__")
    if not (mark and overload):
        return f"aten.{folder}" if _NAME.fullmatch(folder) else None
    if not (_NAME.fullmatch(base) and _NAME.fullmatch(overload)):
        return None
    return f"aten.{base}.{overload}"


def age_of_attempt(file: str, folder: str) -> tuple[int, str, int] | None:
    """Sorting key of a kernel file; higher is newer. None for a file that is no attempt at the kernel.

    Files with equal numbers are ordered by name, so that an implementation is newer than an attempt, then by language.
    """
    ending = re.compile(re.escape(folder) + r"(?:_attempt_(\d+)|_implementation(?:_v(\d+))?)?", re.ASCII)
    path = PurePath(file)
    found = ending.fullmatch(path.stem)
    if found is None or path.suffix not in KERNEL_SUFFIXES:
        return None
    number = found[1] or found[2]
    return (int(number) if number else -1, path.stem, -KERNEL_SUFFIXES.index(path.suffix))
