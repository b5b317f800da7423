"""Turns a kernel's source files or import path into a function to call. Runs in the worker only."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path, PurePosixPath
from types import MappingProxyType, ModuleType
from typing import Any

from torchstone import operators
from torchstone.backends.find_kernel_function import MissingEntryError, missing_entry
from torchstone.backends.missing_imports import added_modules
from torchstone.backends.native_source import is_native
from torchstone.gradient_operators import Differentiated
from torchstone.model_operators import ModelFunction, WeightKind, weights_among
from torchstone.schema import (
    PROBLEM_FILE,
    Implementation,
    ImportPath,
    SourceFiles,
    forward_operator,
    is_gradient,
    is_model,
)


def load(implementation: Implementation, scratch: Path) -> Callable[..., Any]:
    """Import the candidate, or prepare to build it, and return its function. Exceptions of its code propagate."""
    found: Any
    problem: dict[str, Any] = {}
    weights: Mapping[str, WeightKind] | None = None
    match implementation.origin:
        case ImportPath(module=module, attribute=attribute):
            found = reduce(getattr, attribute.split("."), importlib.import_module(module))
        case SourceFiles() as source:
            folder = _new_folder(scratch)
            _write(source, folder)
            if is_model(implementation.operator):
                problem = _import_problem(folder)
                weights = weights_among({file.name: file.text for file in source.files})
            if is_native(source.files[0].name):
                from torchstone.worker.building import native_kernel

                found = native_kernel(source, forward_operator(implementation.operator), folder)
            else:
                found = _import_source(source, folder, "class" if is_model(implementation.operator) else "function")
    if not callable(found):
        raise TypeError(f"the entry point of {implementation.operator} is not callable: {type(found).__name__}")
    if is_model(implementation.operator):
        return ModelFunction(found, problem, weights)
    if is_gradient(implementation.operator):
        return Differentiated(found, operators.resolve(forward_operator(implementation.operator)))
    return found  # type: ignore[no-any-return]


def _import_problem(folder: Path) -> dict[str, Any]:
    """Import the problem's file under the name by which a solution imports it, and return what it defines.

    Replaces the module of a problem that was loaded earlier.
    """
    name = PROBLEM_FILE.removesuffix(".py")
    return vars(_imported(name, folder / PROBLEM_FILE))


def _new_folder(scratch: Path) -> Path:
    """An unused folder name. A worker may load several implementations, and compilers read their files later."""
    number = sum(1 for path in scratch.glob("kernel*") if path.is_dir())
    return scratch / (f"kernel_{number}" if number else "kernel")


def _write(source: SourceFiles, folder: Path) -> None:
    """Write the source files into the folder: compilers and Triton read source from disk."""
    folder.mkdir()
    for file in source.files:
        path = folder / _inside(file.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")


def _import_source(source: SourceFiles, folder: Path, kind: str) -> Any:
    """Import the first file and return its entry point. The text is not changed, so errors name its true lines.

    ``kind``: "function" or "class", for the message when the entry point is missing.
    """
    sys.path.insert(0, str(folder))
    entry_file = folder / source.files[0].name
    name = f"torchstone_candidate_{folder.name}_{entry_file.stem}"
    module = _imported(name, entry_file, added_modules(source))
    if not hasattr(module, source.entry):
        own = (key for key, value in vars(module).items() if callable(value) and _defined_in(value, name))
        raise MissingEntryError(missing_entry(source.files[0].name, source.entry, own, kind))
    return getattr(module, source.entry)


def _defined_in(value: Any, module: str) -> bool:
    return bool(getattr(value, "__module__", None) == module)


def _imported(name: str, file: Path, given: Mapping[str, ModuleType] = MappingProxyType({})) -> ModuleType:
    """Import a file as the module ``name``. The names in ``given`` are defined in it before its code runs."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    vars(module).update(given)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _inside(name: str) -> str:
    """The file name itself; raises ImportError if it leads out of the kernel's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ImportError(f"file name '{name}' leads out of the kernel's folder")
    return name
