"""Tells which exceptions mean that torch refuses a call, and whether a lack of device memory counts.

A candidate on the same device can take memory. So a judge must not take "out of memory" for a refusal without asking
who holds the memory: otherwise a candidate could have checks skipped. Code that takes a refusal for an answer catches
:func:`operator_errors`.
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
"""Messages of CUDA's libraries for a lack of memory that torch's own allocator did not meet. "Not initialized" is said
of a handle that cannot be made."""


class _Policy:
    """The policy of this process: a judge has one thread that calls torch's operators."""

    excuses: Callable[[], bool] | None = None
    """Whether a lack of memory counts as a refusal. None: always, since no other process uses the device."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a GPU lacked memory. A lack of CPU memory always counts as a refusal."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS)


def operator_errors() -> tuple[type[Exception], ...]:
    """What to catch where a refusal of torch is an answer: ``except operator_errors():``.

    Python evaluates it when there is an error. A lack of memory that does not count as a refusal is not caught.
    """
    error = sys.exception()
    if is_out_of_memory(error) and _Policy.excuses is not None and not _Policy.excuses():
        return ()
    return OPERATOR_ERRORS


@contextmanager
def excusing_shortage_if(excuses: Callable[[], bool]) -> Iterator[None]:
    """Inside, a lack of device memory counts as a refusal only if this function says so at that moment."""
    before, _Policy.excuses = _Policy.excuses, excuses
    try:
        yield
    finally:
        _Policy.excuses = before
