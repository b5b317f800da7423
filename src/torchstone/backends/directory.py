"""Backend `directory`: kernels in folders, written by people or by a model, one folder per operator.

Two layouts are read, also mixed:

    ROOT/run_20240101_120000/relu/relu_attempt_1.py          relu_kernel_impl
    ROOT/evaluation_only/relu/relu.py                        relu_kernel_impl
    ROOT/add__Tensor/add__Tensor_implementation_v1.py        add__Tensor_kernel_impl
    ROOT/add__Tensor/add__Tensor_implementation_v2.cu        add__Tensor_kernel_impl or add__Tensor, a C++ function

ROOT is a collection of runs, one run, or a plain folder of operator folders. A run is named `run_…` after its time, or
holds `generation.json`, which `torchstone generate` writes. A folder named after an overload
(`add__Tensor`, see `folder_names`) serves that overload. A folder named after an operator alone (`relu`, `add`)
serves its overloads `default` and `Tensor`. This module does not check which of them exists: that would need torch.

Which kernel of several wins:
1. `evaluation_only`, then operator folders directly in ROOT, then runs from the newest to the oldest;
2. in the same place, the folder named after the overload before the one named after the operator;
3. in the same folder, the attempt that `best.json` names; without that file the highest attempt or version as a
   number; a file without a number is older than all;
4. of the same attempt, Python before CUDA before C++. A .cu and a .cpp of one attempt are one kernel; if there is a
   .py of the same name, that is the kernel and may read them.
Files that several kernels share lie beside the operators' folders (`shared_files`): modules, packages, headers.
If the newest file of a folder cannot be read, the whole folder is not used, older attempts included, and is reported as
a `Problem`. The next folder in the order is then used.

Nothing here runs or imports a kernel. Only the worker finds out whether its text is valid Python.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from pathlib import Path, PurePath

import msgspec

from torchstone.backends.base import BackendOptions, HeldKernel, Problem
from torchstone.backends.folder_names import KERNEL_SUFFIXES, age_of_attempt, folder_name, operator_name
from torchstone.backends.native_source import HEADERS, compiled_files, entry_in, is_native, language_of
from torchstone.backends.python_source import language_of_modules
from torchstone.backends.shared_files import SharedFiles
from torchstone.backends.source_files import MAX_BYTES, UnreadableError, read_source, require_inside, system_reason
from torchstone.errors import UsageError
from torchstone.schema import Implementation, Language, SourceFile, SourceFiles, decode
from torchstone.schema.generation import BEST, GENERATION

BASE_NAME_OVERLOADS = ("default", "Tensor")
"""The overloads that a folder named after an operator alone serves."""

_SUFFIXES = (*KERNEL_SUFFIXES, *HEADERS)
_RUN = re.compile(r"(?:.*_)?run_(\d+(?:_\d+)*)", re.ASCII)


class _Started(msgspec.Struct, frozen=True):
    """The part of `generation.json` that orders runs."""

    started_unix_ns: int


class _Best(msgspec.Struct, frozen=True):
    """The part of `best.json` that counts here."""

    file: str


_LAYOUT = "Expected one folder per operator, such as relu/relu.py or add__Tensor/add__Tensor_implementation_v1.py."


class DirectoryBackend:
    """Your own kernels, a folder for each operator: --kernels-dir FOLDER.

    Offers what the folders hold as they were when the backend was made.
    """

    def __init__(self, options: BackendOptions) -> None:
        root = _require_folder(options.kernels_dir)
        self._root = root
        self._kernels: dict[str, FolderKernel] = {}
        self._problems: list[Problem] = []
        shared = SharedFiles(root)
        for preference, folder in enumerate(self._operator_folders(root)):
            try:
                kernel = _read_kernel(folder, root, preference, shared)
            except (UnreadableError, OSError) as error:
                self._report(folder, root, error)
            else:
                self._kernels.setdefault(kernel.operator, kernel)
        packages = {_printable(folder.relative_to(root)) for folder in shared.packages}
        self._problems = [problem for problem in self._problems if problem.where not in packages]
        self._problems += shared.problems()
        if not self._kernels:
            raise UsageError(f"no kernel can be read from {_printable(root)}: {self._first_problem()}. {_LAYOUT}")

    def implementation(self, operator: str) -> Implementation | None:
        """The kernel for the overload, or None."""
        base, _, overload = operator.rpartition(".")
        names = (operator, base) if overload in BASE_NAME_OVERLOADS else (operator,)
        offers = [self._kernels[name] for name in names if name in self._kernels]
        if not offers:
            return None
        best = min(offers, key=lambda kernel: kernel.preference)
        return Implementation("directory", operator, best.origin, best.language)

    def why_missing(self, operator: str) -> str:
        """Why there is no kernel for the overload: the folder names that were expected, or the problem of a folder."""
        base, _, overload = operator.rpartition(".")
        names = [folder_name(operator), *([folder_name(base)] if overload in BASE_NAME_OVERLOADS else [])]
        for problem in self._problems:
            if PurePath(problem.where).name in names:
                return f"{problem.where}: {problem.reason}"
        return f"{_printable(self._root)} has no folder {' or '.join(reversed(names))}"

    def operators(self) -> tuple[str, ...]:
        """The operators with kernels: `aten.add.Tensor` for a folder of an overload, `aten.add` for an operator's."""
        return tuple(sorted(self._kernels))

    def held(self) -> tuple[HeldKernel, ...]:
        """Every kernel that was read and is preferred, with the overloads that its folder serves."""
        return tuple(
            HeldKernel(str(Path(kernel.origin.label).parent), served_by(operator))
            for operator, kernel in sorted(self._kernels.items())
        )

    def problems(self) -> tuple[Problem, ...]:
        """Every folder that offers nothing, with the reason, in the order in which folders are preferred."""
        return tuple(self._problems)

    def _operator_folders(self, root: Path) -> Iterator[Path]:
        """Every operator folder, the preferred ones first."""
        for place in _parents_of_operator_folders(root):
            try:
                names = sorted(_subfolders(place, root), key=_overloads_first)
            except (UnreadableError, OSError) as error:
                self._report(place, root, error)
            else:
                yield from (
                    place / name for name in names if place != root or not _is_parent_of_operator_folders(place / name)
                )

    def _report(self, folder: Path, root: Path, error: Exception) -> None:
        reason = system_reason(error) if isinstance(error, OSError) else str(error)
        self._problems.append(Problem(_printable(folder.relative_to(root)), reason))

    def _first_problem(self) -> str:
        if not self._problems:
            return "it holds no folders"
        first, *others = self._problems
        return f"{first.where}: {first.reason}" + (f" (and {len(others)} more)" if others else "")


def served_by(operator: str) -> tuple[str, ...]:
    """The overloads that a folder serves, given what it is named after: that overload, or `default` and `Tensor`."""
    return (operator,) if operator.count(".") > 1 else tuple(f"{operator}.{name}" for name in BASE_NAME_OVERLOADS)


class FolderKernel(msgspec.Struct, frozen=True):
    """The kernel of one operator folder."""

    operator: str
    """`aten.add.Tensor`, or `aten.add` if the folder is named after the operator alone."""
    preference: int
    """Lower wins."""
    origin: SourceFiles
    language: Language


def kernel_in(folder: Path) -> FolderKernel:
    """The kernel of this operator folder, with the shared files that it uses. Raises UsageError if there is none."""
    try:
        return _read_kernel(folder, folder, 0, SharedFiles(folder.parent))
    except (UnreadableError, OSError) as error:
        reason = system_reason(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"no kernel can be read from {_printable(folder)}: {reason}.") from error


# ---- places: the root itself, runs, kernels by hand


def _require_folder(kernels_dir: Path | None) -> Path:
    if kernels_dir is None:
        raise UsageError(f"backend 'directory' needs the folder of kernels: add --kernels-dir DIR. {_LAYOUT}")
    try:
        is_folder = stat.S_ISDIR(kernels_dir.stat().st_mode)
    except FileNotFoundError:
        raise UsageError(f"kernels folder {_printable(kernels_dir)} does not exist. {_LAYOUT}") from None
    except OSError as error:
        raise _unreadable_root(kernels_dir, error) from error
    if not is_folder:
        raise UsageError(
            f"{_printable(kernels_dir)} is not a folder. Give the folder that holds the operators'. {_LAYOUT}"
        )
    return kernels_dir


def _unreadable_root(root: Path, error: OSError) -> UsageError:
    return UsageError(f"kernels folder {_printable(root)} cannot be read: {system_reason(error)}. Allow it or copy it.")


def _parents_of_operator_folders(root: Path) -> Iterator[Path]:
    """The folders that contain operator folders, the preferred one first."""
    try:
        names = _subfolders(root, root)
    except OSError as error:
        raise _unreadable_root(root, error) from error
    if "evaluation_only" in names:
        yield root / "evaluation_only"
    yield root
    runs = [name for name in names if _is_run(root / name)]
    yield from (root / name for name in sorted(runs, key=lambda name: _run_order(root / name), reverse=True))


def _is_parent_of_operator_folders(folder: Path) -> bool:
    return folder.name == "evaluation_only" or _is_run(folder)


def _is_run(folder: Path) -> bool:
    return _RUN.fullmatch(folder.name) is not None or os.path.isfile(folder / GENERATION)


def _run_order(folder: Path) -> tuple[tuple[int, ...], str]:
    """Sorting key of a run folder; higher is newer. `run_20240101_120000` gives its numbers.

    Under any other name, the start time in `generation.json` gives the same numbers.
    """
    found = _RUN.fullmatch(folder.name)
    return (_numbers(found[1]) if found else _start_time(folder), folder.name)


def _start_time(folder: Path) -> tuple[int, ...]:
    try:
        began = decode((folder / GENERATION).read_bytes(), _Started).started_unix_ns
        return _numbers(datetime.fromtimestamp(began / 1e9).strftime("%Y%m%d_%H%M%S"))
    except (OSError, msgspec.DecodeError, ValueError, OverflowError):
        return ()  # unknown: older than all others


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("_"))


def _subfolders(folder: Path, root: Path) -> list[str]:
    """Names of the folders in a folder, except hidden ones and Python's caches."""
    require_inside(folder, root)
    names = (name for name in os.listdir(folder) if not name.startswith(".") and name != "__pycache__")
    return [name for name in names if (folder / name).is_dir()]


def _overloads_first(name: str) -> tuple[bool, str]:
    """Sorting key: folders named after an overload come before folders named after an operator alone."""
    return ((operator_name(name) or "").count(".") < 2, name)


# ---- one operator folder


def _read_kernel(folder: Path, root: Path, preference: int, shared: SharedFiles) -> FolderKernel:
    operator = operator_name(folder.name)
    if operator is None:
        raise UnreadableError("the name is no operator's; write for instance 'relu' or 'add__Tensor'")
    require_inside(folder, root)
    names = sorted(name for name in os.listdir(folder) if Path(name).suffix in _SUFFIXES)
    order_by_name = {name: order for name in names if (order := age_of_attempt(name, folder.name)) is not None}
    if not order_by_name:
        expected = (f"{folder.name}{ending}.py" for ending in ("", "_attempt_1", "_implementation_v1"))
        unused = "; no kernel imports it as a package" if "__init__.py" in names else ""
        raise UnreadableError(f"no kernel file; expected {' or '.join(expected)}{unused}")
    newest = _named_best(folder, root, names=order_by_name) or max(order_by_name, key=lambda name: order_by_name[name])
    own = tuple(_read_sources(folder, [newest, *_companions(newest, names, order_by_name)], root))
    if not own[0].text.strip():
        raise UnreadableError(f"{newest} is empty")
    files = (*own, *shared.used_by(own, folder.parent))
    conventional = (f"{folder.name}_kernel_impl", folder.name)
    entry = entry_in(files, conventional) if is_native(newest) else conventional[0]
    origin = SourceFiles(files, entry, _printable((folder / newest).relative_to(root)))
    native = [file.name for file in compiled_files(files)]
    language = language_of(native) if is_native(newest) else language_of_modules(files)
    return FolderKernel(operator, preference, origin, language)


def _named_best(folder: Path, root: Path, names: Container[str]) -> str | None:
    """The attempt that `best.json` names; None: there is no such file."""
    if BEST not in os.listdir(folder):
        return None
    text = read_source(folder / BEST, root, MAX_BYTES)[0].text
    try:
        best = decode(text, _Best).file
    except msgspec.DecodeError as error:
        raise UnreadableError(f'{BEST} is not readable ({error}); write the attempt as {{"file": "NAME"}}') from error
    if best not in names:
        raise UnreadableError(f"{BEST} names {best!r}, which is no attempt in this folder; correct or delete it")
    return best


def _companions(newest: str, names: Iterable[str], order_by_name: Container[str]) -> Iterator[str]:
    """Further files of the kernel: C++ and CUDA sources of the same attempt, and files that are no attempt."""
    stem = Path(newest).stem
    for name in names:
        of_this_attempt = name in order_by_name and name != newest and Path(name).stem == stem and is_native(name)
        is_helper = name not in order_by_name and (not name.endswith(".py") or Path(name).stem.isidentifier())
        if of_this_attempt or is_helper:
            yield name


def _read_sources(folder: Path, names: Iterable[str], root: Path) -> Iterator[SourceFile]:
    left = MAX_BYTES
    for name in names:
        file, left = read_source(folder / name, root, left)
        yield file


def _printable(path: Path) -> str:
    """The path as one printable line; other characters are escaped."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(path))
