"""Smoke cases of operators that move elements: indexing, concatenation and views."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.suites.smoke.rows import BF16, F16, Operator, Row, index, real, strided, whole


def rows() -> Iterator[Row]:
    """All rows of this table, in the order of the suite."""
    yield from _indexing()
    yield from _concatenation()
    yield from _view()


def _indexing() -> Iterator[Row]:
    index_select = Operator("index_select", "indexing")
    yield index_select(real(5, 4), 0, index(0, below=5), tags="empty")
    yield index_select(real(1), 0, index(1, below=1), tags="one-element")
    yield index_select(real(9, 21), 1, index(35, below=21), tags="odd", floats=F16)
    yield index_select(
        strided(real(12, 7), (1, 12), offset=2), 0, index(6, below=12, dtype="int32"), tags="noncontiguous offset"
    )
    yield index_select(real(2048, 256), 0, index(1024, below=2048), timed=True)
    gather = Operator("gather", "indexing")
    yield gather(real(4, 6), 1, index(4, 0, below=6), tags="empty")
    yield gather(real(1, 1), 0, index(1, 1, below=1), tags="one-element")
    yield gather(real(7, 33), 1, index(5, 11, below=33), tags="odd", floats=BF16)
    yield gather(strided(real(16, 9), (1, 16)), 0, index(3, 9, below=16), tags="noncontiguous")
    yield gather(real(256, 1024), 1, index(256, 512, below=1024), timed=True)
    embedding = Operator("embedding", "indexing")
    yield embedding(real(10, 4), index(0, 3, below=10), tags="empty")
    yield embedding(real(1, 1), index(1, below=1), tags="one-element")
    yield embedding(real(37, 19), index(3, 7, below=37), tags="odd", floats=BF16)
    yield embedding(strided(real(20, 6), (1, 20)), index(8, below=20, dtype="int32"), tags="noncontiguous")
    yield embedding(real(4096, 128), index(16, 128, below=4096), timed=True)


def _concatenation() -> Iterator[Row]:
    cat = Operator("cat", "concatenation")
    yield cat([real(0, 4), real(0, 4)], 0, tags="empty")
    yield cat([real(0, 4), real(3, 4)], 0, tags="empty-part")
    yield cat([real(1)], 0, tags="one-element")
    yield cat([real(3, 5), real(3, 17), real(3, 1)], -1, tags="odd", floats=F16)
    yield cat([strided(real(6, 8), (1, 6)), strided(real(6, 8), (16, 2), offset=1)], 0, tags="noncontiguous offset")
    yield cat([real(512, 256), real(512, 512)], 1, timed=True)


def _view() -> Iterator[Row]:
    transpose = Operator("transpose.int", "view")
    yield transpose(real(0, 3), 0, 1, tags="empty")
    yield transpose(real(1, 1), 0, 1, tags="one-element")
    yield transpose(real(3, 5, 7), 0, -1, tags="odd", floats=BF16)
    yield transpose(strided(real(4, 9), (1, 4), offset=3), 0, 1, tags="noncontiguous offset")
    expand = Operator("expand", "view")
    yield expand(real(0, 1), [0, 4], tags="empty")
    yield expand(real(1), [1], tags="one-element")
    yield expand(real(5, 1), [3, -1, 7], tags="odd", floats=F16)
    yield expand(strided(real(6, 1), (2, 1), offset=1), [6, 5], tags="noncontiguous offset")
    select = Operator("select.int", "view")
    yield select(real(0, 3), 1, 2, tags="empty")
    yield select(real(1), 0, 0, tags="one-element")
    yield select(real(5, 13), 1, -1, tags="odd", floats=BF16)
    any32 = whole(7, 6, low=-(1 << 31), high=1 << 31)
    yield select(strided(any32, (1, 7)), 0, 3, tags="integer noncontiguous")
