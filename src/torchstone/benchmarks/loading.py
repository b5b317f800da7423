"""Loads a benchmark object from a file, in the process that runs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torchstone.benchmarks.protocol import REQUIRED_METHODS


class BenchmarkLoadError(Exception):
    """A file gives no benchmark; the text is the reason, in one line."""


def load_benchmark(path: str | Path, root: str | Path | None = None) -> Any:
    """The benchmark of a file: what its `get_benchmark()` returns, or an object of its only benchmark class.

    `root` is the folder that holds the chapters, by default the one above the file's own. Both stay importable.
    """
    return benchmark_of(load_module(Path(path), Path(root) if root is not None else None))


def load_module(path: Path, root: Path | None = None) -> ModuleType:
    """Run the file as a module. Its name is never `__main__`, so such blocks do not run."""
    path = path.resolve()
    if not path.is_file():
        raise BenchmarkLoadError(f"'{path}' is not a file")
    root = path.parent.parent if root is None else root.resolve()
    make_importable(path.parent, root)
    name = module_name(path, root)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BenchmarkLoadError(f"'{path.name}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        raise
    return module


def make_importable(*folders: Path) -> None:
    """Put the folders first on `sys.path`, in this order."""
    for folder in reversed([str(folder) for folder in folders]):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    importlib.invalidate_caches()


def module_name(path: Path, root: Path) -> str:
    """Module name for an import from the root: `ch13.baseline_moe`. So relative imports and spawned processes work."""
    try:
        parts = path.relative_to(root).with_suffix("").parts
    except ValueError:
        parts = (path.stem,)
    if any("." in part for part in parts) or parts[0] in sys.stdlib_module_names or parts[0] in ("torch", "numpy"):
        parts = (path.stem.replace(".", "_"),)
    return ".".join(parts)


def benchmark_of(module: ModuleType) -> Any:
    """The benchmark object of a module: from `get_benchmark()`, or from its only benchmark class."""
    file = Path(module.__file__ or module.__name__).name
    factory = getattr(module, "get_benchmark", None)
    if callable(factory):
        return _checked(factory(), f"{file}: get_benchmark()")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and not missing_methods(value)
    ]
    if not found:
        methods = ", ".join(REQUIRED_METHODS)
        raise BenchmarkLoadError(f"{file} has no get_benchmark() and no class with the methods {methods}")
    if len(found) > 1:
        names = ", ".join(kind.__name__ for kind in found)
        raise BenchmarkLoadError(f"{file} has {len(found)} benchmark classes ({names}); say which in get_benchmark()")
    return found[0]()


def missing_methods(candidate: Any) -> list[str]:
    """The required methods that a class or object does not have."""
    return [name for name in REQUIRED_METHODS if not callable(getattr(candidate, name, None))]


def _checked(benchmark: Any, source: str) -> Any:
    missing = missing_methods(benchmark)
    if missing:
        raise BenchmarkLoadError(f"{source} returned a {type(benchmark).__name__} without {', '.join(missing)}")
    return benchmark
