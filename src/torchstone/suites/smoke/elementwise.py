"""Smoke cases of elementwise operators: unary, binary with broadcasting, and in place."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.schema import Fill
from torchstone.suites.smoke.rows import (
    BF16,
    F16,
    HALVES,
    NEGATIVE,
    POSITIVE,
    SIGNED,
    Operator,
    Row,
    real,
    strided,
    whole,
)


def rows() -> Iterator[Row]:
    """All rows but those of in-place operators."""
    yield from _unary("relu")
    yield from _unary("log", POSITIVE)
    yield from _gelu()
    yield from _add()
    yield from _binary("mul.Tensor", timed=False)
    yield from _binary("div.Tensor", right=POSITIVE, negative_right=NEGATIVE)


def _unary(name: str, fill: Fill = SIGNED) -> Iterator[Row]:
    unary = Operator(name, "elementwise")
    yield unary(real(0, 3, fill=fill), tags="empty")
    yield unary(real(1, fill=fill), tags="one-element")
    yield unary(real(7, 129, fill=fill), tags="odd", floats=HALVES)
    yield unary(strided(real(17, 31, fill=fill), (1, 17), offset=3), tags="noncontiguous offset")
    yield unary(real(1024, 512, fill=fill), timed=True)


def _gelu() -> Iterator[Row]:
    gelu = Operator("gelu", "elementwise")
    yield gelu(real(0), tags="empty")
    yield gelu(real(), tags="one-element scalar", approximate="tanh")
    yield gelu(real(5, 67), tags="odd", floats=HALVES, approximate="tanh")
    yield gelu(strided(real(9, 14), (28, 2), offset=1), tags="noncontiguous offset")
    yield gelu(real(512, 512), timed=True)


def _add() -> Iterator[Row]:
    add = Operator("add.Tensor", "binary")
    yield add(real(0, 4), real(4), tags="empty broadcast", alpha=2)
    yield add(real(1), real(), tags="one-element scalar", alpha=2)
    yield add(real(5, 1, 33), real(7, 1), tags="broadcast odd", floats=HALVES, alpha=0.5)
    yield add(strided(real(13, 19), (1, 13)), strided(real(13, 19), (0, 1)), tags="noncontiguous expanded")
    yield add(real(6, 11), whole(11, dtype="int64"), tags="promotion broadcast")
    wide = 1 << 28
    yield add(whole(6, 11, low=-wide, high=wide), whole(6, 1, low=-wide, high=wide), tags="integer broadcast", alpha=-3)
    yield add(real(768, 512), real(768, 512), timed=True)
    yield add(real(1024, 512), real(512), tags="broadcast", alpha=2, timed=True)


def _binary(name: str, right: Fill = SIGNED, negative_right: Fill = SIGNED, timed: bool = True) -> Iterator[Row]:
    """Rows of a binary operator. ``negative_right``: fill of the right operand in one row, for negative divisors."""
    binary = Operator(name, "binary")
    yield binary(real(3, 0), real(3, 1, fill=right), tags="empty broadcast")
    yield binary(real(1), real(fill=right), tags="one-element scalar")
    yield binary(real(3, 1, 21), real(5, 1, fill=right), tags="broadcast odd", floats=BF16)
    yield binary(
        strided(real(11, 10), (20, 2), offset=1), real(10, fill=negative_right), tags="noncontiguous offset broadcast"
    )
    if timed:
        yield binary(real(768, 512), real(768, 512, fill=right), timed=True)


def in_place_rows() -> Iterator[Row]:
    """Rows of operators that write into their first argument."""
    add_ = Operator("add_.Tensor", "inplace")
    yield add_(real(0, 3), real(3), tags="empty broadcast")
    yield add_(real(1), real(1), tags="one-element")
    yield add_(real(7, 15), real(15), tags="odd broadcast", floats=BF16, alpha=0.5)
    yield add_(strided(real(11, 18), (1, 11), offset=6), real(11, 18), tags="noncontiguous offset")
    yield add_(real(1024, 512), real(1024, 512), timed=True)
    relu_ = Operator("relu_", "inplace")
    yield relu_(real(0), tags="empty")
    yield relu_(real(), tags="one-element scalar")
    yield relu_(real(3, 43), tags="odd", floats=F16)
    yield relu_(strided(real(9, 8), (16, 2), offset=1), tags="noncontiguous offset")
