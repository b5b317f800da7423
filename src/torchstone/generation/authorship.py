"""Decides whether a correct kernel computes with code of its own or calls torch and its libraries, from its records."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchstone.operator_categories import base_name
from torchstone.schema import Agrees, Attribution, Record
from torchstone.schema.generation import Authorship

_COPY_OPERATORS = frozenset(
    {"copy_", "clone", "contiguous", "_to_copy", "fill_", "zero_", "zeros", "zeros_like", "full"}
)
"""Torch's operators that only copy or fill memory. Calling them does not count as work by torch."""


_COMPILING_NAMES = re.compile(r"\b(load_inline|cpp_extension|ctypes|cffi|numba)\b")
"""Names in a Python file which show that it may build or load compiled code."""


def authorship_of(records: Iterable[Record], code: str = "") -> Authorship:
    """The authorship over all agreeing cases. ``code`` is the kernel's text.

    It is no proof, because attributions come from the kernel's own process.
    """
    may_build = _COMPILING_NAMES.search(code) is not None
    attributions = [
        (record.attribution, may_build or record.implementation.language != "python")
        for record in records
        if isinstance(record.verdict, Agrees) and record.attribution is not None and not record.attribution.note
    ]
    if not attributions:
        return "unknown"
    torch_worked = any(_torch_worked(found) for found, _ in attributions)
    # If any case has device kernels, only such cases can show own code: a compiled file may do nothing but call torch.
    decisive = [each for each in attributions if each[0].kernels] or attributions
    own_code_worked = any(_own_code_worked(found, is_compiled=compiled) for found, compiled in decisive)
    if torch_worked:
        return "mixed" if own_code_worked else "torch"
    return (
        "own" if own_code_worked or not any(found.operators or found.kernels for found, _ in attributions) else "torch"
    )


def _torch_worked(found: Attribution) -> bool:
    """Whether torch did more than copy or fill memory. A library's kernel may be launched without an operator."""
    only_copies = all(_base_name(operator) in _COPY_OPERATORS for operator in found.operators)
    if found.kernels:
        return bool(found.library_share) and not (found.operators and only_copies)
    return not only_copies


def _own_code_worked(found: Attribution, *, is_compiled: bool) -> bool:
    """Whether the kernel's own code did work. Device kernels decide, if there are any: Triton and CUDA are own code.

    Without them, a Python file that calls torch's operators has no other code that computes. A compiled file counts as
    own code, because it is not known how much of the work its own loops do.
    """
    if found.kernels:
        return any(kernel.kind in ("triton", "cuda") for kernel in found.kernels)
    return is_compiled or not found.operators


def _base_name(operator: str) -> str:
    """``copy_`` of ``aten.copy_.default``."""
    return base_name(operator) if operator.count(".") > 1 else operator
