"""Gives tensors of generated cases a memory layout by strides and offset: shifted, transposed, stepped or expanded."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone import operators, schema
from torchstone.suites.random_choices import Choices

MemoryLayout = Literal["plain", "shifted", "transposed", "stepped", "expanded"]
PLAIN: MemoryLayout = "plain"
LAYOUTS: tuple[MemoryLayout, ...] = ("plain", "shifted", "transposed", "stepped", "expanded")
OFFSETS = (1, 3, 7)
_INDEPENDENT_FILLS = (schema.Normal, schema.Uniform, schema.Integers, schema.Booleans)
"""Fills that draw each element by itself. Only these allow stride 0, where elements share a value."""


def laid_out(tensor: schema.Tensor, layout: MemoryLayout, choices: Choices, *, expandable: bool) -> schema.Tensor:
    """The tensor with this layout, if its shape and its values allow it; otherwise unchanged."""
    rank = len(tensor.shape)
    plain = operators.contiguous_strides(tensor.shape)
    match layout:
        case "shifted":
            return msgspec.structs.replace(tensor, offset=choices.one_of(OFFSETS))
        case "transposed" if rank > 1:
            return _with_strides(tensor, _transposed(tensor.shape, choices))
        case "stepped" if rank > 0:
            return _with_strides(tensor, tuple(2 * stride for stride in plain))
        case "expanded" if rank > 0 and expandable and isinstance(tensor.fill, _INDEPENDENT_FILLS):
            return _with_strides(tensor, _expanded(tensor.shape, choices.whole(0, rank - 1)))
        case _:
            return tensor


def _with_strides(tensor: schema.Tensor, strides: tuple[int, ...]) -> schema.Tensor:
    """The tensor with these strides. Strides that address memory as contiguous ones do are left out."""
    differ = (
        any(s != p and size > 1 for s, p, size in _zip_with_contiguous(tensor.shape, strides)) and 0 not in tensor.shape
    )
    return msgspec.structs.replace(tensor, strides=strides) if differ else tensor


def _zip_with_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return list(zip(strides, operators.contiguous_strides(shape), shape, strict=True))


def _transposed(shape: tuple[int, ...], choices: Choices) -> tuple[int, ...]:
    """Dense strides in which another dimension than the last varies fastest."""
    fastest = choices.whole(0, len(shape) - 2)
    order = [*(d for d in range(len(shape)) if d != fastest), fastest]
    dense = operators.contiguous_strides([shape[d] for d in order])
    return tuple(dense[order.index(d)] for d in range(len(shape)))


def _expanded(shape: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    """Strides with 0 along one dimension."""
    narrow = operators.contiguous_strides([1 if d == dimension else size for d, size in enumerate(shape)])
    return tuple(0 if d == dimension else stride for d, stride in enumerate(narrow))
