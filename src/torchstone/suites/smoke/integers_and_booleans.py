"""Smoke cases of integer and bool operators, comparisons and `where`."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.suites.smoke.rows import BF16, F16, SPECIAL, Operator, Row, mask, real, strided, whole


def rows() -> Iterator[Row]:
    """All rows of this table, in the order of the suite."""
    yield from _integer()
    yield from _boolean()


def _integer() -> Iterator[Row]:
    """Rows with integers that no floating-point dtype holds exactly, for kernels that convert them to one."""
    wide, wide32 = 1 << 60, 1 << 31
    bitwise_and = Operator("bitwise_and.Tensor", "integer binary")
    yield bitwise_and(whole(0, 4), whole(4), tags="empty broadcast")
    yield bitwise_and(whole(1), whole(1), tags="one-element")
    yield bitwise_and(
        whole(5, 21, dtype="int64", low=-wide, high=wide),
        whole(21, dtype="int64", low=-wide, high=wide),
        tags="odd broadcast",
    )
    yield bitwise_and(
        strided(whole(9, 33, dtype="uint8", low=0), (1, 9)), whole(9, 33, dtype="uint8", low=0), tags="noncontiguous"
    )
    any32 = whole(1024, 512, low=-wide32, high=wide32)
    yield bitwise_and(any32, any32, timed=True)
    floor_divide = Operator("floor_divide", "integer binary")
    yield floor_divide(whole(0, 4), whole(4, low=1), tags="empty broadcast")
    yield floor_divide(whole(1), whole(1, low=1), tags="one-element")
    yield floor_divide(
        whole(5, 21, dtype="int64", low=-wide, high=wide),
        whole(21, dtype="int64", low=-9, high=0),
        tags="odd broadcast negative",
    )
    yield floor_divide(
        strided(whole(8, 15, dtype="int16"), (1, 8), offset=3),
        whole(8, 15, dtype="int16", low=1),
        tags="noncontiguous offset",
    )
    yield floor_divide(whole(256, 512, low=-wide32, high=wide32), whole(256, 512, low=1), timed=True)


def _boolean() -> Iterator[Row]:
    logical_and = Operator("logical_and", "boolean")
    yield logical_and(mask(0, 3), mask(3), tags="empty broadcast")
    yield logical_and(mask(1), mask(), tags="one-element scalar")
    yield logical_and(mask(7, 45), mask(7, 1), tags="odd broadcast")
    yield logical_and(strided(mask(6, 20), (1, 6), offset=2), mask(6, 20), tags="noncontiguous offset")
    yield logical_and(whole(5, 9, low=-1, high=2), mask(5, 9), tags="integer")
    gt = Operator("gt.Tensor", "boolean")
    yield gt(real(0), real(0), tags="empty")
    yield gt(real(1), real(), tags="one-element scalar")
    yield gt(real(5, 1, 19), real(3, 1), tags="odd broadcast", floats=F16)
    yield gt(strided(real(14, 9), (18, 2), offset=1), real(9), tags="noncontiguous offset")
    neighbours = whole(4, 31, low=(1 << 30) - 3, high=(1 << 30) + 3)  # all equal once converted to float32
    yield gt(neighbours, neighbours, tags="integer ties")
    yield gt(real(1024, 512), real(1024, 512), timed=True)
    yield gt(real(13, 17, fill=SPECIAL), real(13, 17, fill=SPECIAL), tags="specials")
    where = Operator("where.self", "boolean")
    yield where(mask(0, 2), real(2), real(0, 2), tags="empty broadcast")
    yield where(mask(1), real(1), real(1), tags="one-element")
    yield where(mask(7, 1), real(13), real(), tags="odd broadcast", floats=BF16)
    yield where(
        strided(mask(8, 17), (1, 8)), real(8, 17), strided(real(8, 17), (34, 2), offset=1), tags="noncontiguous offset"
    )
    yield where(mask(19, 7), real(19, 7, fill=SPECIAL), real(19, 7, fill=SPECIAL), tags="specials", floats=BF16)
    yield where(mask(512, 512), real(512, 512), real(512, 512), timed=True)
