"""Finds the modules, packages and headers that a kernel imports or includes from outside its own folder.

    ROOT/common_ops.py            import common_ops
    ROOT/common/__init__.py       from common import tiles
    ROOT/common/tiles.py
    ROOT/blocks.cuh               #include "blocks.cuh"

ROOT is the folder of kernels. A kernel gets the files that it imports or includes by name, directly or through each
other, and no others. So its content key (a hash of its files) changes only if a file that it uses does. The worker
writes them into the kernel's own folder.

A name means the first of these that exists:
1. a file of the kernel's own folder;
2. a module of the standard library or of `RESERVED`;
3. a file in the folder that holds the operator's folder (a run, `evaluation_only`);
4. a file at the root.
As in Python, a package comes before a module of the same name. Imports that are computed when the kernel runs are not
found.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchstone.backends.base import Problem
from torchstone.backends.folder_names import age_of_attempt
from torchstone.backends.native_source import HEADERS, is_native
from torchstone.backends.python_source import Import, imports_in
from torchstone.backends.source_files import MAX_BYTES, UnreadableError, read_source
from torchstone.schema import SourceFile

MAX_FILES = 64
"""Most shared files of one kernel. Each kernel has its own copy in the run folder and in every worker. Hand-written
kernels share a few modules; a whole library belongs in an installed package."""

RESERVED = sys.stdlib_module_names | {"torch", "triton", "numpy", "torchstone"}
"""Modules that no file of a kernel may replace, because torch and the worker import them, too."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def is_package(folder: Path) -> bool:
    """Whether a folder beside operators' folders is a package to import rather than an operator's."""
    if not (folder / "__init__.py").is_file():
        return False
    return all(age_of_attempt(name, folder.name) is None for name in os.listdir(folder))


class SharedFiles:
    """The shared files of one kernels folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.packages: set[Path] = set()
        """Folders of packages that some kernel uses."""
        self._problems: dict[str, Problem] = {}

    def used_by(self, own: Sequence[SourceFile], place: Path) -> tuple[SourceFile, ...]:
        """The shared files that a kernel uses. ``place`` is the folder that contains the kernel's folder."""
        bytes_left = MAX_BYTES - sum(len(file.text.encode()) for file in own)
        names = {file.name for file in own}
        found: dict[str, SourceFile] = {}
        waiting = deque(own)
        while waiting:
            file = waiting.popleft()
            for name, path in self._requested_files(file, names, tuple(dict.fromkeys((place, self._root)))):
                if name in found:
                    continue
                if len(found) == MAX_FILES:
                    raise UnreadableError(
                        f"imports more than {MAX_FILES} shared files; install what many kernels share as a package"
                    )
                found[name], bytes_left = read_source(path, self._root, bytes_left, name)
                if "/" in name:
                    self.packages.add(path.parents[name.count("/") - 1])
                waiting.append(found[name])
        return tuple(found[name] for name in sorted(found))

    def problems(self) -> tuple[Problem, ...]:
        """Shared files that a kernel imports but does not get, because their names are reserved."""
        return tuple(self._problems.values())

    def _requested_files(
        self, file: SourceFile, own: set[str], parent_folders: Sequence[Path]
    ) -> Iterator[tuple[str, Path]]:
        """The shared files that a file imports or includes: the name for the worker, and the path."""
        if not file.name.endswith(".py"):
            yield from _headers(file, own, parent_folders)
            return
        for statement in imports_in(file.text):
            module = _absolute(statement, file.name)
            if not module or f"{module[0]}.py" in own:
                continue
            if module[0] in RESERVED:
                self._note_reserved(module[0], parent_folders)
            else:
                yield from _module_files(module, statement.names, parent_folders)

    def _note_reserved(self, name: str, parent_folders: Sequence[Path]) -> None:
        for place in parent_folders:
            path = place / f"{name}.py"
            if path.is_file():
                where = str(path.relative_to(self._root))
                reason = f"not given to kernels: '{name}' is a module of Python or of torch; give the file another name"
                self._problems[where] = Problem(where, reason)


def _headers(file: SourceFile, own: set[str], parent_folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """The shared headers that a C++ or CUDA file includes. Names with a folder are ignored: other folders belong to
    other kernels.
    """
    if not (is_native(file.name) or file.name.endswith(HEADERS)):
        return
    for name in _INCLUDE.findall(file.text):
        if name in own or "/" in name or not name.endswith(HEADERS):
            continue
        for place in parent_folders:
            if os.path.lexists(place / name):
                yield name, place / name
                break


def _absolute(statement: Import, file: str) -> tuple[str, ...]:
    """The parts of the module's full name; empty if a relative import leads out of the package."""
    module = tuple(part for part in statement.module.split(".") if part)
    if not statement.level:
        return module
    package = file.split("/")[:-1]
    kept = len(package) - (statement.level - 1)
    return (*package[:kept], *module) if kept > 0 else ()


def _module_files(
    module: tuple[str, ...], names: Sequence[str], parent_folders: Sequence[Path]
) -> Iterator[tuple[str, Path]]:
    """The files of ``import a.b`` or ``from a.b import names``, and ``__init__.py`` of the packages around them."""
    for place in parent_folders:
        found = _module_file(module[:1], place)
        if found is None:
            continue
        yield found
        targets = [module[:length] for length in range(2, len(module) + 1)]
        for target in (*targets, *((*module, name) for name in names)):
            inner = _module_file(target, place)
            if inner is not None:
                yield inner
        return


def _module_file(parts: tuple[str, ...], place: Path) -> tuple[str, Path] | None:
    """The file of a module, or ``__init__.py`` of a package. None if there is none, or it is an operator's folder."""
    if not all(part.isidentifier() for part in parts):  # `*`
        return None
    folder = place.joinpath(*parts)
    if len(parts) > 1 and not is_package(place / parts[0]):
        return None
    if (folder / "__init__.py").is_file() and (len(parts) > 1 or is_package(folder)):
        return "/".join((*parts, "__init__.py")), folder / "__init__.py"
    file = folder.with_name(f"{parts[-1]}.py")
    return ("/".join(parts) + ".py", file) if os.path.lexists(file) else None
