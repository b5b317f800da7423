"""Describes the arguments of a call for the kernel's author: shapes, dtypes and memory, no value of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from torchstone.feedback.feedback_fields import ArgumentShape
from torchstone.feedback.value_kinds import kind_of
from torchstone.schema import Argument, Case, Complex, NonFinite, Record, Scalar, Tensor, describe, is_gradient
from torchstone.schema import Sequence as Listed

_ASKING = "asking"
"""Name of the argument of a gradient that lists which arguments require one, as in `gradient_operators`."""


def arguments_of(record: Record, called: Case) -> tuple[ArgumentShape, ...]:
    """The arguments of a call of the record's case or of its variant. Floats drawn for a variant appear as a kind."""
    stated = dict(_named_arguments(record.case, record.argument_names))
    return tuple(
        _argument_shape(name, item, stated.get(name)) for name, item in _named_arguments(called, record.argument_names)
    )


def tensor_names(record: Record, called: Case) -> tuple[str, ...]:
    """The names of the tensor arguments of a call, in order."""
    return tuple(name for name, item in _named_arguments(called, record.argument_names) if isinstance(item, Tensor))


class GradientNames(NamedTuple):
    """What a call of a gradient returns: so many results of the operator, then a gradient for each argument named."""

    results: int
    arguments: tuple[str, ...]


def gradient_names(record: Record, called: Case) -> GradientNames:
    """What a call of a gradient returns. For other operators there are no results and no names."""
    if not is_gradient(called.operator) or not isinstance(called.args[0], Listed):
        return GradientNames(0, ())
    cotangents = record.argument_names[0] if record.argument_names else "argument 0"
    floating = [
        name
        for name, item in _named_arguments(called, record.argument_names)
        if isinstance(item, Tensor) and _is_floating(item.dtype) and name.partition("[")[0] != cotangents
    ]
    asking = called.kwargs.get(_ASKING)
    if isinstance(asking, Listed):
        places = [item.value for item in asking.items if isinstance(item, Scalar) and isinstance(item.value, int)]
        floating = [floating[place] for place in places if place < len(floating)]
    return GradientNames(len(called.args[0].items), tuple(floating))


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def same_memory(one: Case, other: Case) -> bool:
    """Whether two calls differ in nothing but the values of tensors."""
    return [_without_fill(item) for _, item in _named_arguments(one, ())] == [
        _without_fill(item) for _, item in _named_arguments(other, ())
    ]


def _without_fill(item: Argument) -> object:
    return (item.shape, item.dtype, item.strides, item.offset) if isinstance(item, Tensor) else item


def _named_arguments(case: Case, names: Sequence[str]) -> Iterator[tuple[str, Argument]]:
    """Name and recipe of each argument. Tensors of a list are named one by one: ``tensors[1]``."""
    known = [*names[: len(case.args)], *(f"argument {place}" for place in range(len(names), len(case.args)))]
    for name, item in (*zip(known, case.args, strict=True), *case.kwargs.items()):
        if isinstance(item, Listed) and any(isinstance(one, Tensor) for one in item.items):
            yield from ((f"{name}[{place}]", one) for place, one in enumerate(item.items))
        else:
            yield name, item


def _argument_shape(name: str, item: Argument, stated: Argument | None) -> ArgumentShape:
    if not isinstance(item, Tensor):
        return ArgumentShape(name, value=_value_text(item, is_stated=item == stated))
    contiguous_order = contiguous_strides(item.shape)
    strides = contiguous_order if item.strides is None else item.strides
    return ArgumentShape(
        name,
        dtype=item.dtype,
        shape=item.shape,
        strides=strides,
        storage_offset=item.offset,
        contiguous=_is_same_order(item.shape, strides, contiguous_order),
    )


def _value_text(item: Argument, *, is_stated: bool) -> str:
    """The text of an argument that is no tensor. A float that was drawn for a variant appears as its kind, because its
    value is hidden. Integers, which choose dimensions and sizes, are shown.
    """
    is_drawn = isinstance(item, Complex | NonFinite) or (isinstance(item, Scalar) and isinstance(item.value, float))
    return describe(item) if is_stated or not is_drawn else f"a float ({kind_of(describe(item))})"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor of this shape, in elements."""
    return tuple(accumulate((max(1, size) for size in reversed(shape[1:])), mul, initial=1))[::-1] if shape else ()


def _is_same_order(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two tuples of strides describe the same memory order. Strides of dimensions of size 1 do not count."""
    if 0 in shape:
        return True
    return all(mine == theirs for size, mine, theirs in zip(shape, one, other, strict=True) if size > 1)
