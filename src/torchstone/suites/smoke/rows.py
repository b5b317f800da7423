"""Defines a row of the smoke suite's tables (a case in one or several dtypes), and short functions to write rows.

The dtype ``FLOAT`` stands for the floating-point dtypes of the row or of the request.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchstone.schema import (
    Argument,
    Booleans,
    Case,
    Fill,
    Integers,
    Normal,
    Scalar,
    Sequence,
    Tensor,
    Uniform,
    tensors_of,
)

FLOATS = ("float64", "float32", "float16", "bfloat16")
EXACT = ("int64", "int32", "int16", "int8", "uint8", "bool")

FLOAT = "float"
"""Stands in a row for a floating-point dtype that is filled in later."""
F32, F16, BF16 = ("float32",), ("float16",), ("bfloat16",)
HALVES = F16 + BF16

SIGNED = Normal()
SPECIAL = Normal(specials=True)
"""With infinities, NaN, both zeros and subnormals, for operators whose results for these are defined."""
POSITIVE = Uniform(0.125, 8.0)
"""For logarithms and divisors: well away from zero in every dtype."""
NEGATIVE = Uniform(-8.0, -0.125)


EXCUSES = {
    "empty": "the result has no elements: only its structure, dtype and shape are judged",
    "one-element": "the result has one element: its mean, a copy of the input, 0 or a guessed boolean may be right",
    "of-nothing": "a sum over no elements is 0 for all inputs",
    "empty-part": "the other part is empty, so the right result is a copy of this one",
}
"""Tags of cases that trivial kernels may pass, and why. The cases are there for kernels that crash on them."""


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a case whose ``FLOAT`` tensors take each of the dtypes in turn."""

    case: Case
    floats: tuple[str, ...]

    def cases(self, requested: tuple[str, ...] | None) -> Iterator[Case]:
        used = {tensor.dtype for tensor in tensors_of(self.case)}
        if FLOAT in used:
            floats = self.floats if requested is None else tuple(name for name in requested if name in FLOATS)
            yield from (_with_float(self.case, dtype) for dtype in floats)
        elif requested is None or not used.isdisjoint(requested) or not set(FLOATS).isdisjoint(requested):
            yield self.case


def _with_float(case: Case, dtype: str) -> Case:
    return msgspec.structs.replace(case, args=tuple(_fill_in(argument, dtype) for argument in case.args))


def _fill_in(argument: Argument, dtype: str) -> Argument:
    match argument:
        case Tensor() if argument.dtype == FLOAT:
            return msgspec.structs.replace(argument, dtype=dtype)
        case Sequence(items=items):
            return Sequence(tuple(_fill_in(item, dtype) for item in items))
        case _:
            return argument


Plain = Tensor | list[Tensor] | list[int] | bool | int | float | str | None
"""An argument as the table writes it."""


class Operator:
    """Makes the rows of one operator. ``relu`` is short for ``aten.relu.default``; tags are words in one string."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = f"aten.{name}" if "." in name else f"aten.{name}.default"
        self.kind = kind

    def __call__(
        self, *args: Plain, tags: str = "", floats: tuple[str, ...] = F32, timed: bool = False, **kwargs: Plain
    ) -> Row:
        positional = tuple(_argument(item) for item in args)
        named = {name: _argument(item) for name, item in kwargs.items()}
        words = f"{self.kind} {tags} speed" if timed else f"{self.kind} {tags}"
        excuse = next((EXCUSES[word] for word in words.split() if word in EXCUSES), "")
        return Row(Case("smoke", self.name, positional, named, tuple(words.split()), timed, indistinct=excuse), floats)


def _argument(item: Plain) -> Argument:
    if isinstance(item, Tensor):
        return item
    if isinstance(item, list):
        return Sequence(tuple(_argument(part) for part in item))
    return Scalar(item)


def real(*shape: int, fill: Fill = SIGNED) -> Tensor:
    """A floating-point tensor."""
    return Tensor(shape, FLOAT, fill)


def whole(*shape: int, dtype: str = "int32", low: int = -100, high: int = 100) -> Tensor:
    """An integer tensor."""
    return Tensor(shape, dtype, Integers(low, high))


def index(*shape: int, below: int, dtype: str = "int64") -> Tensor:
    """Valid indices into a dimension of the given size."""
    return whole(*shape, dtype=dtype, low=0, high=below)


def mask(*shape: int) -> Tensor:
    """A bool tensor."""
    return Tensor(shape, "bool", Booleans())


def strided(tensor: Tensor, strides: tuple[int, ...], offset: int = 0) -> Tensor:
    """The same tensor with another memory layout."""
    return msgspec.structs.replace(tensor, strides=strides, offset=offset)
