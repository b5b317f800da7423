"""Hidden variants in other memory layouts: strides, gaps, offsets, permuted and expanded dimensions."""

from __future__ import annotations

import random

import msgspec

from torchstone import operators, schema
from torchstone.calls.resizing import mapped, strides_like

FILLS_PER_ELEMENT = (schema.Normal, schema.Uniform, schema.Integers, schema.Booleans)
"""Fills whose elements may be equal, so that a dimension can be expanded; other fills need some to differ."""


def on_plain_memory(case: schema.Case) -> schema.Case:
    """The case with every tensor contiguous."""

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(strides=tuple()):
                return msgspec.structs.replace(argument, strides=None, offset=0)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def with_permuted_memory(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with other strides and offsets. Every torch kernel can read these: the last dimension keeps stride 1.

    - Three dimensions or more: the dimensions before the last are permuted in memory, as those of attention heads are.
    - Tensors that the operator only reads: matrices get gaps between rows; larger tensors do at random.
    - Offset: random, for most tensors not 0.
    - Tensors whose values the case states (the fill ``given``) do not change.
    """
    written = operators.contract_of(case).mutated
    position = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal position
        match argument:
            case schema.Tensor(fill=fill):
                position += 1
                given = isinstance(fill, schema.Given)
                return argument if given else _relaid_tensor(argument, position in written, random_)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def _relaid_tensor(tensor: schema.Tensor, written: bool, random_: random.Random) -> schema.Tensor:
    strides, dimensions = tensor.strides, len(tensor.shape)
    rows_apart = dimensions > 1 and not written and (dimensions == 2 or random_.random() < 0.5)
    shape = (*tensor.shape[:-1], tensor.shape[-1] + random_.choice((1, 4))) if rows_apart else tensor.shape
    if dimensions > 2:
        before = list(range(dimensions, 1, -1))
        ranks = random_.sample(before, len(before))
        strides = strides_like((*(ranks if ranks != before else reversed(ranks)), 1), shape)
    elif dimensions == 2 and rows_apart:
        strides = operators.contiguous_strides(shape)
    return msgspec.structs.replace(tensor, strides=strides, offset=random_.choice((0, 1, 4, 7)))


def laid_out(case: schema.Case, random_: random.Random, *, scattered: bool = False) -> schema.Case:
    """The case with every tensor in another memory layout; ``scattered``: none contiguous, as far as shapes allow.

    Arguments are expanded here only if the operator is pointwise and does not write to them. For other operators
    :mod:`torchstone.judging.variants.expanded_memory` tests first which arguments may be expanded.
    """
    written = operators.contract_of(case).mutated
    pointwise = operators.traits(case.operator).pointwise
    position = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal position
        match argument:
            case schema.Tensor():
                position += 1
                expandable = pointwise and position not in written
                return on_other_memory(argument, random_, expandable=expandable, scattered=scattered)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def on_other_memory(
    tensor: schema.Tensor, random_: random.Random, *, expandable: bool = False, scattered: bool = False
) -> schema.Tensor:
    """The tensor with a random offset and one of these memory layouts, at random.

    - apart: gaps between rows, or between other dense parts;
    - transposed: the dimensions in another order in memory, sometimes with gaps;
    - stepped: all strides doubled;
    - shifted: no change but the offset;
    - expanded: one dimension with stride 0.
    """
    plain = operators.contiguous_strides(tensor.shape)
    layouts = [] if scattered and tensor.shape else ["shifted"]
    if tensor.shape:
        layouts.append("stepped")
    if len(tensor.shape) > 1:
        layouts += ["apart", "apart", "transposed", "transposed"]
    if expandable and tensor.shape and isinstance(tensor.fill, FILLS_PER_ELEMENT):
        layouts.append("expanded")
    layout = random_.choice(layouts)
    strides: tuple[int, ...] | None = None
    if layout == "stepped":
        strides = tuple(2 * stride for stride in plain)
    elif layout == "apart":
        strides = operators.contiguous_strides(_padded(tensor.shape, random_))
    elif layout == "transposed":
        descending = list(range(len(plain), 0, -1))
        ranks = random_.sample(descending, len(plain))
        shape = _padded(tensor.shape, random_) if random_.random() < 0.25 else tensor.shape
        strides = strides_like(tuple(ranks if ranks != descending else reversed(ranks)), shape)
    elif layout == "expanded":
        dimension = random_.randrange(len(plain))
        strides = strides_like(tuple(0 if d == dimension else s for d, s in enumerate(plain)), tensor.shape)
    return msgspec.structs.replace(tensor, strides=strides, offset=random_.choice((0, 1, 3, 7)))


def as_slices_of_larger(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with each tensor laid out as a slice of a larger one: ``x[:, :n]``, a chunk, a column ``x[:, 0]``."""

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(shape=(_,), fill=fill) if not isinstance(fill, schema.Given):
                return msgspec.structs.replace(argument, strides=(random_.choice((2, 3)),))
            case schema.Tensor(shape=shape, fill=fill) if len(shape) > 1 and not isinstance(fill, schema.Given):
                strides = operators.contiguous_strides(_padded(shape, random_))
                return msgspec.structs.replace(argument, strides=strides, offset=random_.choice((0, 1, 4, 8)))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def _padded(shape: tuple[int, ...], random_: random.Random) -> tuple[int, ...]:
    """The shape of a larger tensor that this one is a slice of: one size grows, mostly the last, never the first."""
    sizes = [max(1, size) for size in shape]
    inner = len(shape) - 1 if random_.random() < 0.75 else random_.randrange(1, len(shape))
    sizes[inner] += random_.choice((1, 3, 4, 8, sizes[inner]))
    return tuple(sizes)
