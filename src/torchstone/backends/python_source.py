"""Parses Python source text without running it: what it imports, defines and leaves undefined. It is not trusted."""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from torchstone.schema import Language, SourceFile

MAX_PARSED_CHARACTERS = 256 << 10
"""Longer text is not parsed: parsing megabytes built to be hard to parse takes gigabytes."""


class Import(NamedTuple):
    """One import statement, or one name of ``import a, b``."""

    module: str
    """Dotted name of the module; empty for ``from . import x``."""
    names: tuple[str, ...] = ()
    """Names after ``from … import``: attributes or submodules."""
    level: int = 0
    """Number of leading dots of a relative import."""


class Definitions(NamedTuple):
    """The names that the top level of a module binds."""

    functions: tuple[str, ...]
    """Names of ``def`` statements directly at the top level."""
    names: frozenset[str]
    """Every name: functions, classes, assignments, imports, also those below ``if``, ``try`` and ``with``."""
    own: frozenset[str]
    """The names that the text defines itself: all except imports."""


def imports_in(text: str) -> tuple[Import, ...]:
    """The import statements, at any depth; none for text that cannot be parsed."""
    tree = _parsed(text) if "import" in text else None
    return () if tree is None else tuple(_imports(tree))


def unbound_names(text: str, wanted: Collection[str]) -> frozenset[str]:
    """The wanted names that the text uses as globals without binding them.

    Empty if the text cannot be parsed, or contains ``from m import *``, which may bind any of them.
    """
    if not any(name in text for name in wanted) or _parsed(text) is None:
        return frozenset()
    if any("*" in found.names for found in imports_in(text)):
        return frozenset()
    try:
        scopes = [symtable.symtable(text, "kernel.py", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    used, bound = set[str](), set[str]()
    for scope in scopes:  # grows while it is read
        at_top = scope.get_type() == "module"
        for symbol in scope.get_symbols():
            if at_top or symbol.is_global():
                used |= {symbol.get_name()} if symbol.is_referenced() else set()
                bound |= {symbol.get_name()} if symbol.is_assigned() or symbol.is_imported() else set()
        scopes += scope.get_children()
    return frozenset(wanted) & (used - bound)


def language_of_modules(files: Iterable[SourceFile]) -> Language:
    """`triton` if any Python file imports Triton, at any depth, or uses it without an import; else `python`."""
    modules = (file.text for file in files if file.name.endswith(".py"))
    return "triton" if any(_uses_triton(text) for text in modules) else "python"


def _uses_triton(text: str) -> bool:
    return _imports_package(text, "triton") or bool(unbound_names(text, ("triton", "tl")))


def _imports_package(text: str, package: str) -> bool:
    if package not in text:
        return False
    return any(found.level == 0 and found.module.partition(".")[0] == package for found in imports_in(text))


def definitions_in(text: str) -> Definitions | None:
    """The definitions of the text; None if it cannot be parsed."""
    tree = _parsed(text)
    if tree is None:
        return None
    functions = tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    try:
        own = frozenset(_bound(tree.body, imports=False))
        return Definitions(functions, own | frozenset(_bound(tree.body, imports=True)), own)
    except RecursionError:  # a thousand `elif` branches are a thousand nested statements
        return None


def _parsed(text: str) -> ast.Module | None:
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", tuple(alias.name for alias in node.names), node.level)


def _bound(body: list[ast.stmt], *, imports: bool) -> Iterator[str]:
    """Names that the statements bind; those of import statements only with ``imports``."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom() if imports:
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.If() | ast.Try() | ast.With():
                for part in ("body", "orelse", "finalbody"):
                    yield from _bound(getattr(node, part, []), imports=imports)
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body, imports=imports)
