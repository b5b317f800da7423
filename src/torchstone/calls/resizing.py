"""Gives a case other sizes: changes shapes, and the lists, numbers and index ranges that go with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from torchstone import schema
from torchstone.calls.enumeration_arguments import with_enumeration_arguments_of

Sizes = Mapping[int, int]
"""Old size -> new size."""


def resized(case: schema.Case, sizes: Sizes, *, numbers: bool, ranges: bool = True) -> schema.Case:
    """The case with other sizes.

    ``numbers``: integer arguments that equal a size change with it. ``ranges``: ranges of drawn indices change too.
    """
    followed = sizes if ranges else {}
    return with_enumeration_arguments_of(
        case, mapped(case, lambda argument: _resized_argument(argument, sizes, numbers, followed))
    )


def mapped(case: schema.Case, change: Callable[[schema.Argument], schema.Argument]) -> schema.Case:
    """The case with each argument replaced by ``change(argument)``."""
    args = tuple(change(argument) for argument in case.args)
    kwargs = {name: change(argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _resized_argument(argument: schema.Argument, sizes: Sizes, numbers: bool, ranges: Sizes) -> schema.Argument:
    match argument:
        case schema.Tensor(shape=shape, strides=strides, fill=fill):
            new = tuple(sizes.get(size, size) for size in shape)
            layout = None if strides is None else strides_like(strides, new)
            return msgspec.structs.replace(argument, shape=new, strides=layout, fill=_resized_fill(fill, ranges))
        case schema.Sequence(items=items):
            return schema.Sequence(tuple(_resized_argument(item, sizes, numbers, ranges) for item in items))
        case schema.Scalar(value=int() as value) if numbers and not isinstance(value, bool):
            return schema.Scalar(sizes.get(value, value))
        case _:
            return argument


def _resized_fill(fill: schema.Fill, sizes: Sizes) -> schema.Fill:
    """The fill; a range of indices that ends at a size changes with it."""
    if isinstance(fill, schema.Integers | schema.SortedIntegers) and fill.low == 0 and fill.high in sizes:
        return msgspec.structs.replace(fill, high=sizes[fill.high])
    return fill


def strides_like(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides for another shape, with the same order of dimensions, innermost step and expanded dimensions."""
    found = list(strides)
    step = min((stride for stride in strides if stride), default=1)
    for dimension in sorted(range(len(strides)), key=lambda d: strides[d]):
        if strides[dimension]:
            found[dimension] = step
            step *= max(1, shape[dimension])
    return tuple(found)
