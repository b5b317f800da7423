"""Lists the built-in kernels, tells what is missing to use them, and loads one. Imports no torch by itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from torchstone.errors import UsageError, unknown_name

LANGUAGES = ("triton", "cuda")
"""Implementations with kernels in this package."""
IMPLEMENTATIONS = (*LANGUAGES, "torch")
"""Valid values of the functions' argument `impl`."""
_HOME = Path(__file__).parent
_NAMESPACE, _OVERLOAD = "aten", "default"
"""Namespace and overload of all built-in kernels' operators."""


def require_known(impl: str) -> None:
    """Raise a `UsageError` for an unknown implementation."""
    if impl not in IMPLEMENTATIONS:
        raise unknown_name("implementation", impl, IMPLEMENTATIONS)


def folder_of(impl: str) -> Path:
    """Where the kernels of a language lie, one folder per operator."""
    if impl not in LANGUAGES:
        raise unknown_name("language of built-in kernels", impl, LANGUAGES)
    return _HOME / impl


def operators(impl: str) -> tuple[str, ...]:
    """The overloads that have a kernel: `aten.gelu.default`, … For `torch`, those of all languages."""
    require_known(impl)
    folders = [folder_of(language) for language in (LANGUAGES if impl == "torch" else (impl,))]
    names = {path.parent.name for folder in folders for path in folder.glob("*/*.py") if path.stem == path.parent.name}
    return tuple(f"{_NAMESPACE}.{name}.{_OVERLOAD}" for name in sorted(names))


@cache
def kernel(operator: str, impl: str = "triton") -> Callable[..., Any]:
    """The function that computes one overload: `aten.gelu.default` or `gelu`. It has the overload's parameters."""
    require_known(impl)
    name = _name_of(operator, impl)
    if impl == "torch":
        import torch

        overload: Callable[..., Any] = getattr(getattr(torch.ops.aten, name), _OVERLOAD)
        return overload
    found = _loaded(f"{impl}_{name}", folder_of(impl) / name / f"{name}.py", impl)
    entry: Callable[..., Any] = getattr(found, f"{name}_kernel_impl")
    return entry


@cache
def fused(name: str, impl: str) -> ModuleType:
    """The module of a fused kernel, with `forward` and `backward`."""
    path = _HOME / "fused" / f"{name}_{impl}.py"
    if not path.is_file():
        raise UsageError(f"{name} has no kernel in '{impl}' here. Use impl='torch'.")
    return _loaded(f"{name}_{impl}", path, impl)


def what_is_missing(impl: str) -> str | None:
    """One line on the software that a language needs and that is not installed; None if nothing is missing."""
    require_known(impl)
    if impl == "triton" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed. Install it: pip install 'torchstone[triton]'."
    if impl == "cuda":
        if importlib.util.find_spec("torchstone.kernels.cuda_compilers") is None or not operators("cuda"):
            return "this version of Torchstone has no CUDA kernels. Use those in Triton."
        reason: str | None = importlib.import_module("torchstone.kernels.cuda_compilers").why_unavailable()
        return reason
    return None


def why_unavailable(impl: str) -> str | None:
    """Why the kernels of a language cannot run here, in one line that says what to do; None: they can."""
    missing = what_is_missing(impl)
    if missing is not None or impl == "torch" or (impl == "triton" and is_interpreted()):
        return missing
    import torch

    if torch.cuda.is_available():
        return None
    hint = ", or set TRITON_INTERPRET=1 before Python starts to run Triton's interpreter" if impl == "triton" else ""
    return f"The kernels need a CUDA device, and torch sees none. Use impl='torch'{hint}."


def is_interpreted() -> bool:
    """Whether Triton kernels run in its interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _name_of(operator: str, impl: str) -> str:
    parts = operator.split(".")
    name = parts[1] if len(parts) == 3 and (parts[0], parts[2]) == (_NAMESPACE, _OVERLOAD) else operator
    known = operators(impl)
    if f"{_NAMESPACE}.{name}.{_OVERLOAD}" not in known:
        raise unknown_name(f"operator of the built-in kernels in '{impl}'", operator, known)
    return name


def _loaded(name: str, path: Path, impl: str) -> ModuleType:
    missing = what_is_missing(impl)
    if missing is not None:
        raise UsageError(f"implementation '{impl}': {missing}")
    full = f"torchstone_kernels_{name}"
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None, "a path that ends in .py"
    assert spec.loader is not None, "a path that ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full]
        raise
    return module
