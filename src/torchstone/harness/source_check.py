"""Checks a benchmark file without running it: whether it can be read, parsed, and holds a benchmark."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import NamedTuple

ENTRY_POINT = "get_benchmark"


class Source(NamedTuple):
    """A benchmark file as text."""

    content: bytes
    """Empty if it could not be read."""
    problem: str = ""
    """Why the file cannot hold a benchmark; empty if no reason was found."""
    modules: frozenset[str] = frozenset()
    """First parts of the names that it imports: `common` for ``import common.python.timing``."""


def read_source(path: Path) -> Source:
    """Read and parse the file. Nothing in it is run."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return Source(b"", f"cannot be read: {error.strerror or error}")
    if path.suffix != ".py":
        return Source(content)
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not _declares_encoding(content):
            return Source(content, f"is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}")
    try:
        tree = _parse(content, path)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return Source(content, f"syntax error: {where}{error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Source(content, f"cannot be parsed: {error or type(error).__name__}")
    problem = "" if _may_hold_benchmark(tree) else f"no benchmark in it: no class, and no function {ENTRY_POINT}"
    return Source(content, problem, _imported_modules(tree))


def _declares_encoding(content: bytes) -> bool:
    """Whether one of the first two lines names an encoding, as PEP 263 has it."""
    return any(b"coding" in line and line.lstrip().startswith(b"#") for line in content.split(b"\n")[:2])


def _parse(content: bytes, path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as an invalid escape sequence in a string
        return ast.parse(content, str(path))


def _may_hold_benchmark(tree: ast.Module) -> bool:
    """False only if there is no class and nothing named get_benchmark: base classes may be imported."""
    return any(_offers_benchmark(node) for node in ast.walk(tree))


def _offers_benchmark(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef():
            return True
        case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
            return name == ENTRY_POINT
        case ast.ImportFrom(names=names):
            return any((alias.asname or alias.name) in (ENTRY_POINT, "*") for alias in names)
    return False


def _imported_modules(tree: ast.Module) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found)
