"""Describes where tensors lie, in memory shared with the judge or in the worker's own, for commands and replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

MOST_KEPT = 12
"""Calls of one case whose results a worker is asked to keep."""
MOST_SPARSE = 2
"""A result may span this many times the memory that its elements need; the worker closes wider gaps itself."""
KEPT_ARENA_BYTES = 4 << 20
"""Device memory of this size stays with a worker from case to case, because the driver opens memory slowly, for one
process after another. A larger block is opened for one case and closed after it."""


class Placement(msgspec.Struct, frozen=True):
    """Where a tensor's storage lies in the arena: ``offset + set * pitch``."""

    offset_bytes: int
    pitch_bytes: int
    elements: int
    """Elements of storage, gaps and offset included."""
    dtype: str


class Output(msgspec.Struct, frozen=True):
    """What a returned leaf must look like. Where it lies is the candidate's affair: the judge reads it there."""

    dtype: str | None
    """None: a plain number, which the reply carries."""
    shape: tuple[int, ...] | None = ()
    """None: it depends on the values, and the reply says it."""
    argument: int | None = None
    """The returned leaf must be this tensor argument itself (in-place, out=)."""
    fresh: bool = False
    """The operator promises new memory: what is still to be conjugated or negated in an argument's is not that."""


Address = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
"""What a worker says is bounded where it is read, so that no sum or product of it can leave the machine's integers."""
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)]


class ResultAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where a returned tensor lies in the worker's memory. A claim: what is found there is compared all the same."""

    address: Address
    strides: Sizes | None = None
    """None: contiguous."""
    shape: Sizes | None = None
    """None: the one that was declared."""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """An allocation on the device that holds results, and the CUDA IPC handle in hexadecimal that opens it."""

    address: Address
    size_bytes: Size
    handle: Annotated[str, msgspec.Meta(max_length=256)]


def span_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first element of a tensor to its last; it must have some."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def same_steps(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether strides mean the same: where there is no second element any stride does."""
    return 0 in shape or all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))
