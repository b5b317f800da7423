"""Backend `kernelbench`: solutions of KernelBench problems, one file with a class ``ModelNew`` per problem.

A file is found by the problem's own name (``level1/19_ReLU.py`` or ``19_ReLU.py``), or as KernelBench names it
(``level_1_problem_19_sample_0_kernel.py``), where the highest sample counts. In a run of `torchstone generate` it is
the attempt that ``best.json`` names in the problem's folder, and the newest of several runs counts. A file that cannot
be read is a `Problem`; no other file is used instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from torchstone.backends.base import BackendOptions, Problem
from torchstone.backends.source_files import MAX_BYTES, UnreadableError, read_source, system_reason
from torchstone.errors import UsageError
from torchstone.schema import Implementation, SourceFile, SourceFiles, decode, is_model
from torchstone.schema.generation import BEST

_SAMPLE_FILE = re.compile(r"level_(?P<level>\d+)_problem_(?P<number>\d+)_sample_(?P<sample>\d+)_kernel\.py")
_PROBLEM_NAME = re.compile(r"(?:.*__)?(?:level_?(?P<level>\d+)__)?p?(?P<number>\d+)_\w+")


class _Best(msgspec.Struct, frozen=True):
    """The part of `best.json` that counts here."""

    file: str


class SolutionsBackend:
    """Solutions of kernelbench's problem files, with a ModelNew each: --kernels-dir FOLDER."""

    def __init__(self, options: BackendOptions) -> None:
        if options.kernels_dir is None or not options.kernels_dir.is_dir():
            given = "" if options.kernels_dir is None else f"there is no folder '{options.kernels_dir}'. "
            raise UsageError(f"{given}backend 'kernelbench' needs the folder of solutions: --kernels-dir DIR.")
        self._root = options.kernels_dir
        self._files = sorted(path for path in self._root.rglob("*.py") if not os.path.isdir(path))
        self._texts: dict[Path, str] = {}
        self._unreadable_reasons: dict[Path, str] = {}
        """File -> why it cannot be read."""
        for path in self._files:
            try:
                self._texts[path] = read_source(path, self._root, MAX_BYTES)[0].text
            except (UnreadableError, OSError) as error:
                self._unreadable_reasons[path] = system_reason(error) if isinstance(error, OSError) else str(error)

    def implementation(self, operator: str) -> Implementation | None:
        """The solution for the operator of a problem, or None."""
        if not is_model(operator):
            return None
        path = self._path(operator)
        text = None if path is None else self._texts.get(path)
        if path is None or text is None:
            return None
        source = SourceFiles((SourceFile(path.name, text),), "ModelNew", self._where(path))
        return Implementation("kernelbench", operator, source, "triton" if "import triton" in text else "python")

    def why_missing(self, operator: str) -> str:
        """Why there is no solution for the operator of a problem: no file has its name, or the file cannot be read."""
        path = self._path(operator) if is_model(operator) else None
        if path in self._unreadable_reasons:
            return f"{self._where(path)}: {self._unreadable_reasons[path]}"
        return f"{self._root} has no solution of this problem's name"

    def problems(self) -> tuple[Problem, ...]:
        """Every file that cannot be read, with the reason."""
        return tuple(Problem(self._where(path), reason) for path, reason in self._unreadable_reasons.items())

    def _where(self, path: Path) -> str:
        return str(path.relative_to(self._root))

    def _path(self, operator: str) -> Path | None:
        return self._file_named_after(operator) or self._generated(operator) or self._best_sample(operator)

    def unmatched(self, operators: Collection[str]) -> list[str]:
        """Files with a solution that belong to none of these problems, not even as a lower sample."""
        finders = (self._file_named_after, self._best_sample, self._generated)
        used = {path for operator in operators for find in finders if (path := find(operator)) is not None}
        generated = {path.parent for path in used if (path.parent / BEST).is_file()}
        samples = {match["level"] + "/" + match["number"] for path in used if path and (match := _sample_match(path))}
        left = [path for path in self._files if path not in used and path.parent not in generated]
        return [
            self._where(path)
            for path in left
            if "ModelNew" in self._texts.get(path, "")
            if not ((match := _sample_match(path)) and match["level"] + "/" + match["number"] in samples)
        ]

    def _file_named_after(self, operator: str) -> Path | None:
        """The file with the problem's name. Folder names are compared as far as both names contain them."""
        wanted = re.sub(r"^p(?=\d)", "", operator.split(".")[1])
        fitting = {path: _name_from_path(path.relative_to(self._root)) for path in self._files}
        exact = [path for path, name in fitting.items() if name == wanted]
        ends = [path for path, name in fitting.items() if wanted.endswith(f"__{name}") or name.endswith(f"__{wanted}")]
        return next(iter(exact + ends), None)

    def _generated(self, operator: str) -> Path | None:
        """The best attempt of the newest run of generation that has one."""
        folder = operator.split(".")[1]
        best = [path for path in self._root.rglob(BEST) if path.parent.name == folder and os.path.isfile(path)]
        found = [(path.stat().st_mtime_ns, path.parent / _best_in(path, self._root)) for path in best]
        return max((item for item in found if item[1] in self._files), default=(0, None))[1]

    def _best_sample(self, operator: str) -> Path | None:
        problem = _PROBLEM_NAME.fullmatch(operator.split(".")[1])
        if problem is None:
            return None
        found = [(match, path) for path in self._files if (match := _SAMPLE_FILE.fullmatch(path.name))]
        same = [
            (int(match["sample"]), path)
            for match, path in found
            if match["number"] == problem["number"] and problem["level"] in (None, match["level"])
        ]
        return max(same)[1] if same else None


def _best_in(path: Path, root: Path) -> str:
    try:
        return decode(read_source(path, root, MAX_BYTES)[0].text, _Best).file
    except (UnreadableError, OSError, msgspec.DecodeError):
        return ""


def _sample_match(path: Path) -> re.Match[str] | None:
    return _SAMPLE_FILE.fullmatch(path.name)


def _name_from_path(path: Path) -> str:
    return re.sub(r"\W", "_", "__".join(path.with_suffix("").parts), flags=re.ASCII)
