"""Finds pairs of benchmark files: `baseline_NAME.py` with `optimized_NAME*.py` in the same folder. Runs none of them.

Every file with such a name is in a pair, or in `problems` with the reason. A paired file with an error is in both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from torchstone.errors import UsageError
from torchstone.harness.source_check import Source, read_source
from torchstone.reports.safe_text import natural
from torchstone.schema import content_key

SUFFIXES = (".py", ".cu")
_FILE = re.compile(r"(baseline|optimized)_(.+)(\.py|\.cu)")
_LEFT_OUT_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


class Pair(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A baseline with one of its optimized files."""

    chapter: str
    """The folder's path relative to the root, `/` between its parts; the root's own name for files in the root."""
    example: str
    """What follows `baseline_`."""
    variant: str
    """What follows the example's name in the optimized file: `sparse` in `optimized_moe_sparse.py`. Mostly empty."""
    baseline: Path
    optimized: Path
    import_root: Path
    """The folder that holds the chapters. It is on `sys.path` while the files load."""
    key: str
    """Hash of chapter, file names and the contents of both files."""

    @cached_property
    def short_name(self) -> str:
        """`moe`, `moe_sparse`, `vector_add.cu`: unique in its chapter."""
        name = f"{self.example}_{self.variant}" if self.variant else self.example
        return name if self.optimized.suffix == ".py" else name + self.optimized.suffix

    @cached_property
    def name(self) -> str:
        """`ch13/moe_sparse`: unique under the root."""
        return f"{self.chapter}/{self.short_name}"


class Problem(msgspec.Struct, frozen=True):
    """A file or folder that is in no pair, or that has an error."""

    path: str
    """Relative to the root."""
    reason: str


class Discovery(msgspec.Struct, frozen=True):
    """What was found under a root."""

    root: Path
    pairs: tuple[Pair, ...]
    problems: tuple[Problem, ...]

    @property
    def chapters(self) -> tuple[str, ...]:
        """The chapters in the order of the pairs, each once."""
        return tuple(dict.fromkeys(pair.chapter for pair in self.pairs))


def discover_benchmarks(root: str | os.PathLike[str]) -> list[tuple[Path, list[Path], str]]:
    """``(baseline_path, [optimized_paths], example_name)`` for every baseline under `root` that has optimized files."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for pair in discover(Path(root)).pairs:
        found.setdefault((pair.baseline, pair.example), []).append(pair.optimized)
    return [(baseline, optimized, example) for (baseline, example), optimized in found.items()]


def discover(root: Path) -> Discovery:
    """Every pair under `root`, and every file that could not be paired or read."""
    root = Path(os.path.abspath(root))
    if not root.is_dir():
        raise UsageError(f"'{root}' is not a folder. Name the folder that holds the chapters, or one chapter.")
    survey = _PairFinder(root)
    pairs = [pair for folder in _folders(root, survey) for pair in survey.pairs_of(folder)]
    pairs.sort(key=lambda pair: (natural(pair.chapter), natural(pair.short_name)))
    problems = sorted(survey.problems, key=lambda problem: natural(problem.path))
    return Discovery(root, tuple(pairs), tuple(problems))


def belongs_to(optimized: str, baselines: Iterable[str]) -> str | None:
    """The longest baseline name that equals the optimized name, or is its beginning before a `_`. None: no name."""
    fitting = [name for name in baselines if optimized == name or optimized.startswith(f"{name}_")]
    return max(fitting, key=len, default=None)


def _folders(root: Path, survey: _PairFinder) -> Iterator[Path]:
    """The root and all folders below it, each real folder once. Links come last, so that real paths are preferred."""
    seen: set[str] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(folder)
        if real in seen or (folder != root and (folder / "pyvenv.cfg").is_file()):
            continue
        seen.add(real)
        yield folder
        try:
            below = sorted((entry for entry in os.scandir(folder) if _is_searched(entry)), key=lambda entry: entry.name)
        except OSError as error:
            survey.add_problem(folder, f"folder cannot be read: {error.strerror}")
            continue
        folders += [Path(entry.path) for entry in reversed(below) if not entry.is_symlink()]
        links += [Path(entry.path) for entry in below if entry.is_symlink()]


def _is_searched(entry: os.DirEntry[str]) -> bool:
    hidden = entry.name.startswith(".") or entry.name in _LEFT_OUT_FOLDERS
    try:
        return not hidden and entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


class _PairFinder:
    """Pairs the files of one folder after another and collects problems."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.problems: list[Problem] = []

    def add_problem(self, path: Path, reason: str) -> None:
        shown = os.path.relpath(path, self._root).encode("utf-8", "backslashreplace").decode()
        self.problems.append(Problem(shown, reason))

    def pairs_of(self, folder: Path) -> list[Pair]:
        """The pairs in this folder, not in those below it."""
        files = self._benchmark_files(folder)
        return [pair for suffix in SUFFIXES for pair in self._pairs_of(folder, suffix, files)]

    def _benchmark_files(self, folder: Path) -> dict[tuple[str, str, str], Path]:
        """(side, name, suffix) -> file."""
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return {}  # `_folders` reports it
        found: dict[tuple[str, str, str], Path] = {}
        for name in names:
            match = _FILE.fullmatch(name)
            path = folder / name
            if match is None or path.is_dir():
                continue
            if not _is_text(str(path)):
                self.add_problem(path, "its path is not UTF-8")
            elif not path.is_file():
                self.add_problem(path, "is no file" + (": the link leads nowhere" if path.is_symlink() else ""))
            else:
                found[match[1], match[2], match[3]] = path
        return found

    def _pairs_of(self, folder: Path, suffix: str, files: dict[tuple[str, str, str], Path]) -> list[Pair]:
        baselines = {name: path for (side, name, end), path in files.items() if side == "baseline" and end == suffix}
        optimized = {name: path for (side, name, end), path in files.items() if side == "optimized" and end == suffix}
        owners = {name: belongs_to(name, baselines) for name in optimized}
        for name, path in baselines.items():
            if name not in owners.values():
                self.add_problem(path, f"has no optimized file: optimized_{name}*{suffix} is not in its folder")
        for name, owner in owners.items():
            if owner is None:
                self.add_problem(optimized[name], f"has no baseline: {_expected(name, suffix)} is not in its folder")
        sources = {path: self._read(path) for path in (*baselines.values(), *optimized.values())}
        return [
            self._pair(folder, owner, name, baselines[owner], optimized[name], sources)
            for name, owner in owners.items()
            if owner is not None
        ]

    def _read(self, path: Path) -> Source:
        source = read_source(path)
        if source.problem:
            self.add_problem(path, source.problem)
        return source

    def _pair(
        self, folder: Path, example: str, name: str, baseline: Path, optimized: Path, sources: dict[Path, Source]
    ) -> Pair:
        chapter = folder.relative_to(self._root).as_posix() if folder != self._root else _root_chapter(self._root)
        sides = sources[baseline], sources[optimized]
        digests = [content_key(side.content) for side in sides]
        return Pair(
            chapter=chapter,
            example=example,
            variant=name[len(example) + 1 :],
            baseline=baseline,
            optimized=optimized,
            import_root=_import_root(self._root, folder, sides[0].modules | sides[1].modules),
            key=content_key("pair", chapter, baseline.name, optimized.name, digests),
        )


def _root_chapter(root: Path) -> str:
    """Chapter of files in the root: the root's name, or `root` if a folder in it has that name."""
    return "root" if not root.name or (root / root.name).is_dir() else root.name


def _is_text(path: str) -> bool:
    """Whether the path can be written to a record: file names may hold any bytes, JSON only Unicode text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _expected(name: str, suffix: str) -> str:
    shorter = " or one with a shorter name" if "_" in name else ""
    return f"baseline_{name}{suffix}{shorter}"


def _import_root(root: Path, folder: Path, modules: frozenset[str]) -> Path:
    """The folder to import from: the root, unless a folder above or below it holds more of the imported modules.

    A tree may lie deeper than the root that was named (`repository/code/ch1`), or reach above it (`code/labs/moe`).
    """
    usual = root if folder != root else root.parent
    around = [parent for parent in folder.parents if parent.is_relative_to(root)] + _up_to_repository(root)
    wanted = modules - _modules_in(folder, modules)
    return max((usual, *around), key=lambda place: len(_modules_in(place, wanted)))


def _up_to_repository(root: Path) -> list[Path]:
    """The folders above the root up to the git repository that contains it; none without a repository."""
    for count, place in enumerate((root, *root.parents)):
        if (place / ".git").exists():
            return list(root.parents[:count])
    return []


def _modules_in(place: Path, modules: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in modules if (place / name).is_dir() or (place / f"{name}.py").is_file())
