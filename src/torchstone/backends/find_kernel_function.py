"""Finds the kernel function's name in Python source text without running it, and words the error if none is there."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.backends.folder_names import folder_name
from torchstone.backends.python_source import definitions_in
from torchstone.operator_categories import base_name

_MOST_NAMES = 8
"""Most functions that the error for a missing kernel function lists: enough to see the mistake in one line."""


def conventional_names(operator: str) -> tuple[str, ...]:
    """Names that a kernel's function may have, the preferred one first.

    For `aten.add.Tensor`: `add__Tensor_kernel_impl`, `add_kernel_impl`, `add`.
    """
    base = base_name(operator)
    return (f"{folder_name(operator)}_kernel_impl", f"{base}_kernel_impl", base)


def python_entry(text: str, operator: str) -> str:
    """The first conventional name that the text defines, else the name of its only function, else the expected name.

    The worker does not find a function that is missing, and the verdict then gives its expected name.
    """
    names = conventional_names(operator)
    defined = definitions_in(text)
    if defined is None:
        return next((name for name in names if f"def {name}(" in text), names[1])
    # Any module may import a `relu`, but whatever binds `relu_kernel_impl`, even an assignment, is the kernel.
    found = [name for name in names if name in defined.functions] or [n for n in names[:2] if n in defined.names]
    if found:
        return found[0]
    return defined.functions[0] if len(defined.functions) == 1 else names[1]


class MissingEntryError(ImportError):
    """A source has no kernel. Torchstone raises this error, so its traceback contains nothing of the source."""


def missing_entry(file: str, entry: str, found: Iterable[str], kind: str = "function") -> str:
    """The message for a source without a kernel: the function or class that was expected, and those that it defines."""
    names = list(found)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    several = "classes" if kind == "class" else "functions"
    there = f"it defines {', '.join(names[:_MOST_NAMES])}{more}" if names else f"it defines no {several}"
    return f"{file} defines no {kind} '{entry}', the expected name of the kernel; {there}"
