"""Solutions of problem files: a file with ``ModelNew`` for each problem.

A file is found by the problem's own name (``level1/19_ReLU.py`` or ``19_ReLU.py``), or as KernelBench names it
(``level_1_problem_19_sample_0_kernel.py``). Of several samples the highest is taken.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from torchstone.backends.base import BackendOptions
from torchstone.errors import UsageError
from torchstone.schema import Implementation, SourceFile, SourceFiles, is_model

_OF_A_RUN = re.compile(r"level_(?P<level>\d+)_problem_(?P<number>\d+)_sample_(?P<sample>\d+)_kernel\.py")
_OF_A_PROBLEM = re.compile(r"(?:.*__)?(?:level_?(?P<level>\d+)__)?p?(?P<number>\d+)_\w+")


class SolutionsBackend:
    """Solutions of kernelbench's problem files, with a ModelNew each: --kernels-dir FOLDER."""

    def __init__(self, options: BackendOptions) -> None:
        if options.kernels_dir is None or not options.kernels_dir.is_dir():
            given = "" if options.kernels_dir is None else f"there is no folder '{options.kernels_dir}'. "
            raise UsageError(f"{given}backend 'kernelbench' needs the folder of solutions: --kernels-dir DIR.")
        self._root = options.kernels_dir
        self._files = sorted(path for path in self._root.rglob("*.py") if path.is_file())

    def implementation(self, operator: str) -> Implementation | None:
        """The solution for the operator of a problem, or None."""
        if not is_model(operator):
            return None
        path = self._named_like(operator) or self._of_a_run(operator)
        if path is None:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
        source = SourceFiles((SourceFile(path.name, text),), "ModelNew", str(path.relative_to(self._root)))
        return Implementation("kernelbench", operator, source, "triton" if "import triton" in text else "python")

    def unmatched(self, operators: Collection[str]) -> list[str]:
        """Files with a solution that is for none of these problems, and is no lower sample of one."""
        used = {path for operator in operators for path in (self._named_like(operator), self._of_a_run(operator))}
        samples = {match["level"] + "/" + match["number"] for path in used if path and (match := _run_of(path))}
        return [
            str(path.relative_to(self._root))
            for path in self._files
            if path not in used and "ModelNew" in path.read_text(encoding="utf-8", errors="replace")
            if not ((match := _run_of(path)) and match["level"] + "/" + match["number"] in samples)
        ]

    def _named_like(self, operator: str) -> Path | None:
        """With as much of the folder as both names tell."""
        wanted = re.sub(r"^p(?=\d)", "", operator.split(".")[1])
        fitting = {path: _plain(path.relative_to(self._root)) for path in self._files}
        exact = [path for path, name in fitting.items() if name == wanted]
        ends = [path for path, name in fitting.items() if wanted.endswith(f"__{name}") or name.endswith(f"__{wanted}")]
        return next(iter(exact + ends), None)

    def _of_a_run(self, operator: str) -> Path | None:
        problem = _OF_A_PROBLEM.fullmatch(operator.split(".")[1])
        if problem is None:
            return None
        found = [(match, path) for path in self._files if (match := _OF_A_RUN.fullmatch(path.name))]
        same = [
            (int(match["sample"]), path)
            for match, path in found
            if match["number"] == problem["number"] and problem["level"] in (None, match["level"])
        ]
        return max(same)[1] if same else None


def _run_of(path: Path) -> re.Match[str] | None:
    return _OF_A_RUN.fullmatch(path.name)


def _plain(path: Path) -> str:
    return re.sub(r"\W", "_", "__".join(path.with_suffix("").parts), flags=re.ASCII)
