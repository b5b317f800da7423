"""Summarizes the cases of an operator for stubs and prompts: dtypes, tags, uncommon kinds of tensors, and all calls."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchstone.schema import Case, Tensor, tensors_of


class CaseOverview(msgspec.Struct, frozen=True):
    """What the author of a kernel may see of the cases of an operator."""

    count: int
    timed: int
    """How many of them are timed."""
    dtypes: tuple[str, ...]
    tags: tuple[str, ...]
    edges: tuple[str, ...]
    """Which uncommon kinds of tensors there are: without elements, strided, expanded."""
    calls: tuple[str, ...]
    """Each call as ``T(shape, dtype)``."""


def overview_of(cases: Sequence[Case]) -> CaseOverview:
    """The summary. Dtypes, tags and calls are in the order in which the cases have them."""
    tensors = [tensor for case in cases for tensor in tensors_of(case)]
    edges = {
        "tensors without elements": any(0 in tensor.shape for tensor in tensors),
        "tensors without dimensions": any(tensor.shape == () for tensor in tensors),
        "strides that are not contiguous": any(tensor.strides is not None for tensor in tensors),
        "strides of zero (expanded)": any(_is_expanded(tensor) for tensor in tensors),
        "a storage offset": any(tensor.offset for tensor in tensors),
    }
    return CaseOverview(
        len(cases),
        sum(case.timed for case in cases),
        tuple(dict.fromkeys(tensor.dtype for tensor in tensors)),
        tuple(dict.fromkeys(tag for case in cases for tag in case.tags)),
        tuple(name for name, there in edges.items() if there),
        tuple(f"({case.label}){'  timed' if case.timed else ''}" for case in cases),
    )


def _is_expanded(tensor: Tensor) -> bool:
    return tensor.strides is not None and any(
        stride == 0 and size > 1 for stride, size in zip(tensor.strides, tensor.shape, strict=True)
    )
