"""Adds common imports that a Python kernel lacks: one that uses `tl` gets ``import triton.language as tl``."""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType

from torchstone.backends.python_source import unbound_names
from torchstone.schema import Origin, SourceFiles

COMMON_IMPORTS = {"math": "math", "torch": "torch", "triton": "triton", "tl": "triton.language"}
"""Name -> the module that is bound to it if a kernel uses the name without binding it."""


@lru_cache(maxsize=256)
def added_names(origin: Origin) -> tuple[str, ...]:
    """Names that are bound in the first file of a Python kernel because it uses them without binding them.

    Names of packages that are not installed are left out: the kernel's own error is clearer.
    """
    if not isinstance(origin, SourceFiles) or not origin.files[0].name.endswith(".py"):
        return ()
    unbound = unbound_names(origin.files[0].text, COMMON_IMPORTS)
    return tuple(name for name, module in COMMON_IMPORTS.items() if name in unbound and _is_installed(module))


def added_imports(origin: Origin) -> tuple[str, ...]:
    """The added names as import statements, for people."""
    return tuple(
        f"import {module}" if module == name else f"import {module} as {name}"
        for name in added_names(origin)
        for module in (COMMON_IMPORTS[name],)
    )


def added_modules(origin: Origin) -> dict[str, ModuleType]:
    """The added names with their imported modules."""
    return {name: importlib.import_module(COMMON_IMPORTS[name]) for name in added_names(origin)}


def _is_installed(module: str) -> bool:
    return find_spec(module.partition(".")[0]) is not None
