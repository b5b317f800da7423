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
    """Those of a call of the record's case, or of a variant of it. Drawn floats of a variant are named by kind."""
    stated = dict(_named(record.case, record.argument_names))
    return tuple(_shape(name, item, stated.get(name)) for name, item in _named(called, record.argument_names))


def tensor_names(record: Record, called: Case) -> tuple[str, ...]:
    """The names of the tensors among them, in their order."""
    return tuple(name for name, item in _named(called, record.argument_names) if isinstance(item, Tensor))


class GradientNames(NamedTuple):
    """What the case of a gradient returns: the operator's results, then a gradient for each of these arguments."""

    results: int
    arguments: tuple[str, ...]


def gradient_names(record: Record, called: Case) -> GradientNames:
    """Of a call of a gradient; nothing for any other operator."""
    if not is_gradient(called.operator) or not isinstance(called.args[0], Listed):
        return GradientNames(0, ())
    cotangents = record.argument_names[0] if record.argument_names else "argument 0"
    floating = [
        name
        for name, item in _named(called, record.argument_names)
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
    return [_without_fill(item) for _, item in _named(one, ())] == [
        _without_fill(item) for _, item in _named(other, ())
    ]


def _without_fill(item: Argument) -> object:
    return (item.shape, item.dtype, item.strides, item.offset) if isinstance(item, Tensor) else item


def _named(case: Case, names: Sequence[str]) -> Iterator[tuple[str, Argument]]:
    """By name, tensors of a list one by one: ``tensors[1]``."""
    known = [*names[: len(case.args)], *(f"argument {place}" for place in range(len(names), len(case.args)))]
    for name, item in (*zip(known, case.args, strict=True), *case.kwargs.items()):
        if isinstance(item, Listed) and any(isinstance(one, Tensor) for one in item.items):
            yield from ((f"{name}[{place}]", one) for place, one in enumerate(item.items))
        else:
            yield name, item


def _shape(name: str, item: Argument, stated: Argument | None) -> ArgumentShape:
    if not isinstance(item, Tensor):
        return ArgumentShape(name, value=_shown(item, is_stated=item == stated))
    usual = contiguous_strides(item.shape)
    strides = usual if item.strides is None else item.strides
    return ArgumentShape(
        name,
        dtype=item.dtype,
        shape=item.shape,
        strides=strides,
        storage_offset=item.offset,
        contiguous=_lies_alike(item.shape, strides, usual),
    )


def _shown(item: Argument, *, is_stated: bool) -> str:
    """A float that was drawn for a variant is a value; numbers that choose dimensions and sizes are its shape."""
    is_drawn = isinstance(item, Complex | NonFinite) or (isinstance(item, Scalar) and isinstance(item.value, float))
    return describe(item) if is_stated or not is_drawn else f"a float ({kind_of(describe(item))})"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row by row, in elements, as torch counts them."""
    return tuple(accumulate((max(1, size) for size in reversed(shape[1:])), mul, initial=1))[::-1] if shape else ()


def _lies_alike(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two strides mean the same memory order. The stride of a dimension of size 1 has no meaning."""
    if 0 in shape:
        return True
    return all(mine == theirs for size, mine, theirs in zip(shape, one, other, strict=True) if size > 1)
