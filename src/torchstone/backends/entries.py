"""Finds the kernel function in a source, and the message if there is none. Text is read, nothing is run."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.backends.folder_names import folder_name
from torchstone.backends.python_source import definitions_in
from torchstone.operator_names import base_name

_MOST_NAMES = 8
"""Functions that are listed where the kernel's is missing: enough to see the mistake in one line."""


def conventional_names(operator: str) -> tuple[str, ...]:
    """Names that a kernel's function may have, the preferred one first.

    For `aten.add.Tensor`: `add__Tensor_kernel_impl`, `add_kernel_impl`, `add`.
    """
    base = base_name(operator)
    return (f"{folder_name(operator)}_kernel_impl", f"{base}_kernel_impl", base)


def python_entry(text: str, operator: str) -> str:
    """The first conventional name that the text gives to a function, or else the only function there is.

    Where neither is so, the name that is expected: the worker does not find it, and the verdict says so.
    """
    names = conventional_names(operator)
    defined = definitions_in(text)
    if defined is None:
        return next((name for name in names if f"def {name}(" in text), names[1])
    # Any module may import a `relu`; who binds a name like `relu_kernel_impl`, in whatever way, means the kernel.
    found = [name for name in names if name in defined.functions] or [n for n in names[:2] if n in defined.names]
    if found:
        return found[0]
    return defined.functions[0] if len(defined.functions) == 1 else names[1]


def missing_entry(file: str, entry: str, found: Iterable[str]) -> str:
    """Why a source has no kernel: the function that was expected, and those that are there."""
    names = list(found)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    there = f"it defines {', '.join(names[:_MOST_NAMES])}{more}" if names else "it defines no functions"
    return f"{file} defines no function '{entry}', the expected name of the kernel; {there}"
