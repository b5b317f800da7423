"""Figures of how the code is laid out, for one version beside another.

    python tools/house_figures.py                        # this working tree
    python tools/house_figures.py --before f7e7445~1     # and a commit, in a git worktree that is removed again
    python tools/house_figures.py --names                # the first docstring line of every module

The corpus of the red team is left out: it is data. A by-name table is a constant of a module that lists at least two
names, most of which are operators of torch. A test of `tests/test_module_lengths.py` keeps modules short.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src") / "torchstone"
LONGEST_MODULE = 400
"""Lines of a module, at most: a newcomer reads it in one go."""
LONGER_FOR_A_REASON = {
    "kernels/cuda/cross_entropy_loss/cross_entropy_loss.py": "CUDA C++ of one kernel in a string, compiled as one file",
}
"""Modules that may be longer, by their path in the package, and why. Generated data and CUDA sources, nothing else."""
_CORPUS = "corpus"
_LEAST_NAMES = 2
_SHARE = 0.5
"""Of a table's strings that must be names of operators."""
_ALSO_WORDS = frozenset(
    {"cpu", "cuda", "device", "index", "indices", "values", "source", "negative", "positive", "zero", "size", "data"}
)
"""Names of operators that are more often devices, arguments or words."""
_APART = ('.split(".")[1]', "Tag.pointwise in")
"""How modules take an operator's name apart, or ask for its tag, by hand."""


@dataclass
class Figures:
    """Of one version."""

    files: Counter[str] = field(default_factory=Counter)
    """By room."""
    lines: Counter[str] = field(default_factory=Counter)
    module_lines: Counter[str] = field(default_factory=Counter)
    functions: list[int] = field(default_factory=list)
    """Lines of each function."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Names of by-name tables, by module."""
    taken_apart: int = 0
    """Lines that take a name of an operator apart."""
    first_lines: dict[str, str] = field(default_factory=dict)
    """First docstring line of each module."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="show a commit beside this working tree")
    parser.add_argument("--tables", action="store_true", help="only the by-name tables")
    parser.add_argument("--names", action="store_true", help="only the modules with the first line of their docstrings")
    given = parser.parse_args()
    now = figures(ROOT)
    if given.names:
        for module, line in sorted(now.first_lines.items()):
            print(f"{module}: {line}")
        return
    if given.tables:
        for module, names in now.tables.items():
            print(f"{module}: {', '.join(names)}")
        return
    versions = {"now": now}
    if given.before:
        with checked_out(given.before) as tree:
            versions = {given.before: figures(tree), **versions}
    for row in rows(versions):
        print("| " + " | ".join(row) + " |")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A worktree of a commit, for as long as it is looked at."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def figures(tree: Path) -> Figures:
    """Read every module of a tree."""
    found, operators = Figures(), operator_names()
    package = tree / PACKAGE
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        if _CORPUS in module.parts:
            continue
        text = path.read_text(encoding="utf-8")
        parsed = ast.parse(text)
        room = module.parts[0] if len(module.parts) > 1 else "(top level)"
        found.files[room] += 1
        found.lines[room] += len(text.splitlines())
        found.module_lines[str(module)] = len(text.splitlines())
        found.functions += [each.end_lineno - each.lineno + 1 for each in functions_in(parsed) if each.end_lineno]
        tables = list(by_name_tables(parsed, operators))
        found.tables |= {str(module): tables} if tables else {}
        found.taken_apart += sum(text.count(way) for way in _APART)
        found.first_lines[str(module)] = (ast.get_docstring(parsed) or "").partition("\n")[0]
    return found


def too_long(tree: Path) -> dict[str, int]:
    """Lines of every module over `LONGEST_MODULE`, by its path in the package."""
    package = tree / PACKAGE
    modules = (path for path in sorted(package.rglob("*.py")) if _CORPUS not in path.relative_to(package).parts)
    lengths = {path.relative_to(package).as_posix(): len(path.read_text("utf-8").splitlines()) for path in modules}
    return {module: lines for module, lines in lengths.items() if lines > LONGEST_MODULE}


def functions_in(parsed: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods."""
    return (node for node in ast.walk(parsed) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def operator_names() -> frozenset[str]:
    """Base names of torch's operators."""
    import torch

    names = (each.name.partition("::") for each in torch._C._jit_get_all_schemas())
    return frozenset(name for namespace, _, name in names if namespace == "aten") - _ALSO_WORDS


def by_name_tables(parsed: ast.Module, operators: frozenset[str]) -> Iterator[str]:
    """Names of the constants of a module that list operators."""
    for node in parsed.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            words = [word for text in strings_in(node.value) for word in text.split()]
            known = sum(word.removeprefix("aten.").partition(".")[0] in operators for word in words)
            if isinstance(target, ast.Name) and known >= _LEAST_NAMES and known >= _SHARE * len(words):
                yield target.id


def strings_in(value: ast.expr) -> Iterator[str]:
    """Strings of a constant, not of annotations."""
    return (node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def rows(versions: dict[str, Figures]) -> Iterator[Sequence[str]]:
    """A table with a column for each version."""
    every = list(versions.values())
    yield ("figure", *versions)
    yield ("---", *("---" for _ in versions))
    for room in sorted({room for each in every for room in each.files}):
        yield (f"`{room}`: files, lines", *(f"{each.files[room]}, {each.lines[room]}" for each in every))
    yield ("all: files, lines", *(f"{sum(each.files.values())}, {sum(each.lines.values())}" for each in every))
    yield ("functions", *(str(len(each.functions)) for each in every))
    yield ("lines of a function: median, p95, longest", *(_lengths(each.functions) for each in every))
    yield ("functions over 60 lines", *(str(sum(length > 60 for length in each.functions)) for each in every))
    yield (f"modules over {LONGEST_MODULE} lines", *(str(_long_modules(each)) for each in every))
    yield ("by-name tables", *(str(sum(map(len, each.tables.values()))) for each in every))
    yield ("modules with by-name tables", *(str(len(each.tables)) for each in every))
    yield ("lines that take an operator's name or tags apart", *(str(each.taken_apart) for each in every))
    yield ("modules without a docstring", *(str(sum(not line for line in each.first_lines.values())) for each in every))


def _lengths(functions: Sequence[int]) -> str:
    centiles = statistics.quantiles(functions, n=100)
    return f"{statistics.median(functions):g}, {centiles[94]:.0f}, {max(functions)}"


def _long_modules(found: Figures) -> int:
    return sum(count > LONGEST_MODULE for count in found.module_lines.values())


if __name__ == "__main__":
    main()
