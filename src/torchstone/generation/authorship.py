"""Decides whether a correct kernel computes with code of its own or calls torch and its libraries, from its records."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchstone.operator_categories import base_name
from torchstone.schema import Agrees, Attribution, Record
from torchstone.schema.generation import Authorship

_COPIES = frozenset({"copy_", "clone", "contiguous", "_to_copy", "fill_", "zero_", "zeros", "zeros_like", "full"})
"""Operators of torch that move or set memory: beside code of its own they do not make a kernel torch's work."""


_BUILDERS = re.compile(r"\b(load_inline|cpp_extension|ctypes|cffi|numba)\b")
"""Names in a Python file which show that it may build or load compiled code."""


def authorship_of(records: Iterable[Record], code: str = "") -> Authorship:
    """Of all cases together. Not a proof: attributions come from the kernel's own process. ``code`` is its text."""
    builds = _BUILDERS.search(code) is not None
    seen = [
        (record.attribution, builds or record.implementation.language != "python")
        for record in records
        if isinstance(record.verdict, Agrees) and record.attribution is not None and not record.attribution.note
    ]
    if not seen:
        return "unknown"
    by_torch = any(_torch_worked(found) for found, _ in seen)
    # Where device kernels were seen, they alone tell of code of its own: a compiled file may call torch and no more.
    telling = [each for each in seen if each[0].kernels] or seen
    by_itself = any(_own_code_worked(found, is_compiled=compiled) for found, compiled in telling)
    if by_torch:
        return "mixed" if by_itself else "torch"
    return "own" if by_itself or not any(found.operators or found.kernels for found, _ in seen) else "torch"


def _torch_worked(found: Attribution) -> bool:
    """Whether torch did more than move or set memory. A library's kernel may have been launched without an operator."""
    only_copies = all(_name(operator) in _COPIES for operator in found.operators)
    if found.kernels:
        return bool(found.library_share) and not (found.operators and only_copies)
    return not only_copies


def _own_code_worked(found: Attribution, *, is_compiled: bool) -> bool:
    """Where no device kernel can be seen: a file that only calls torch's operators has no other code that computes.

    Of a compiled one it is not known how much of the work its own loops do.
    """
    if found.kernels:
        return any(kernel.kind in ("triton", "cuda") for kernel in found.kernels)
    return is_compiled or not found.operators


def _name(operator: str) -> str:
    """``copy_`` of ``aten.copy_.default``."""
    return base_name(operator) if operator.count(".") > 1 else operator
