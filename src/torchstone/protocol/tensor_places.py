"""Describes where tensors lie, in memory shared with the judge or in the worker's own, for commands and replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

MOST_KEPT = 12
"""Most calls of one case whose results a worker must keep."""
MOST_SPARSE = 2
"""A result may span this many times the memory of its elements. The worker makes a more scattered one contiguous."""
KEPT_ARENA_BYTES = 4 << 20
"""Device memory up to this size stays open in a worker from case to case. The driver opens memory slowly, for one
process at a time. A larger block is opened for one case and closed after it."""


class Placement(msgspec.Struct, frozen=True):
    """Where a tensor's storage lies in the arena: at ``offset_bytes + set * pitch_bytes`` for each input set."""

    offset_bytes: int
    pitch_bytes: int
    elements: int
    """Number of elements of the storage, including gaps and offset."""
    dtype: str


class Output(msgspec.Struct, frozen=True):
    """Expected dtype and shape of a returned leaf. The candidate decides where it lies; the judge reads it there."""

    dtype: str | None
    """None: a plain value, which the reply has."""
    shape: tuple[int, ...] | None = ()
    """None: the shape depends on the values, and the reply has it."""
    argument: int | None = None
    """The returned leaf must be this tensor argument itself (in-place, out=)."""
    fresh: bool = False
    """The operator returns new memory. A lazily conjugated or negated view of an argument is then wrong."""


Address = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
"""Sizes in replies are bounded when they are decoded, so that no sum or product of them overflows."""
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)]


class ResultAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where a returned tensor lies in the worker's memory, by its report. The judge compares what it reads there."""

    address: Address
    strides: Sizes | None = None
    """None: contiguous."""
    shape: Sizes | None = None
    """None: the expected shape."""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """An allocation on the device that holds results, and the CUDA IPC handle in hexadecimal that opens it."""

    address: Address
    size_bytes: Size
    handle: Annotated[str, msgspec.Meta(max_length=256)]


def span_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Number of elements from the first element of a tensor to its last. The tensor must not be empty."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def same_steps(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two strides address the same elements. The stride of a dimension of size 1 does not matter."""
    return 0 in shape or all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))
