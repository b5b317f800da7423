"""Layouts of generated tensors: how a recipe of any shape lies in memory."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone import operators, schema
from torchstone.suites.choices import Choices

MemoryLayout = Literal["plain", "shifted", "transposed", "stepped", "expanded"]
PLAIN: MemoryLayout = "plain"
LAYOUTS: tuple[MemoryLayout, ...] = ("plain", "shifted", "transposed", "stepped", "expanded")
OFFSETS = (1, 3, 7)
_PER_ELEMENT = (schema.Normal, schema.Uniform, schema.Integers, schema.Booleans)


def laid_out(tensor: schema.Tensor, layout: MemoryLayout, choices: Choices, *, expandable: bool) -> schema.Tensor:
    """The tensor on such memory, as far as its shape allows it; plain otherwise."""
    rank = len(tensor.shape)
    plain = operators.contiguous_strides(tensor.shape)
    match layout:
        case "shifted":
            return msgspec.structs.replace(tensor, offset=choices.one_of(OFFSETS))
        case "transposed" if rank > 1:
            return _with(tensor, _transposed(tensor.shape, choices))
        case "stepped" if rank > 0:
            return _with(tensor, tuple(2 * stride for stride in plain))
        case "expanded" if rank > 0 and expandable and isinstance(tensor.fill, _PER_ELEMENT):
            return _with(tensor, _expanded(tensor.shape, choices.whole(0, rank - 1)))
        case _:
            return tensor


def _with(tensor: schema.Tensor, strides: tuple[int, ...]) -> schema.Tensor:
    """Strides that make no difference are not told."""
    told = any(s != p and size > 1 for s, p, size in _against_plain(tensor.shape, strides)) and 0 not in tensor.shape
    return msgspec.structs.replace(tensor, strides=strides) if told else tensor


def _against_plain(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return list(zip(strides, operators.contiguous_strides(shape), shape, strict=True))


def _transposed(shape: tuple[int, ...], choices: Choices) -> tuple[int, ...]:
    """One dimension varies fastest that is not the last."""
    fastest = choices.whole(0, len(shape) - 2)
    order = [*(d for d in range(len(shape)) if d != fastest), fastest]
    dense = operators.contiguous_strides([shape[d] for d in order])
    return tuple(dense[order.index(d)] for d in range(len(shape)))


def _expanded(shape: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    """All elements along one dimension are one and the same."""
    narrow = operators.contiguous_strides([1 if d == dimension else size for d, size in enumerate(shape)])
    return tuple(0 if d == dimension else stride for d, stride in enumerate(narrow))
