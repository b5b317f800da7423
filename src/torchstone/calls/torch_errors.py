"""Tells which exceptions mean that torch refuses a call, and whether a lack of device memory counts.

A candidate on the same device can take memory. So a judge must not treat "out of memory" as a refusal without checking
which process holds the memory. Otherwise a candidate could cause checks to be skipped. Code that handles a refusal
catches :func:`operator_errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError)
"""Exceptions by which torch refuses a call. A lack of memory is among them: ``torch.OutOfMemoryError`` is a
``RuntimeError``."""
_OUT_OF_MEMORY_TEXTS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "_STATUS_ALLOC_FAILED",
    "CUFFT_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
)
"""Parts of the messages of CUDA and its libraries when they, not torch's allocator, lack memory. "Not initialized"
means that a library handle could not be created."""


class _MemoryPolicy:
    """How this process treats a lack of device memory. Only one thread of a judge calls torch's operators."""

    excuses: Callable[[], bool] | None = None
    """Called when memory is lacking: whether that counts as a refusal. None: always, as no other process uses the
    device."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a GPU lacked memory. A lack of CPU memory always counts as a refusal."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS)


def operator_errors() -> tuple[type[Exception], ...]:
    """The exceptions by which torch refuses a call, for ``except operator_errors():``.

    Python evaluates this when an exception is raised. Not included is a lack of memory that is no refusal.
    """
    error = sys.exception()
    if is_out_of_memory(error) and _MemoryPolicy.excuses is not None and not _MemoryPolicy.excuses():
        return ()
    return OPERATOR_ERRORS


@contextmanager
def excusing_shortage_if(excuses: Callable[[], bool]) -> Iterator[None]:
    """Within the context, a lack of device memory counts as a refusal only if ``excuses`` then returns True."""
    before, _MemoryPolicy.excuses = _MemoryPolicy.excuses, excuses
    try:
        yield
    finally:
        _MemoryPolicy.excuses = before
