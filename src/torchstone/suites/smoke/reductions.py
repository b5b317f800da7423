"""Smoke cases of reductions: sums, means and maxima."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.suites.smoke.rows import BF16, Operator, Row, mask, real, strided


def rows() -> Iterator[Row]:
    """All rows of this table, in the order of the suite."""
    yield from _reduction("sum.dim_IntList")
    yield from _only_sum()
    yield from _reduction("mean.dim", timed=False)
    yield from _reduction("amax")
    yield from _max_dim()


def _reduction(name: str, timed: bool = True) -> Iterator[Row]:
    reduction = Operator(name, "reduction")
    yield reduction(real(0, 5), [1], tags="empty")
    yield reduction(real(1, 1), [0, 1], tags="one-element")
    yield reduction(real(9, 131), [-1], tags="odd", floats=BF16)
    yield reduction(strided(real(6, 10, 7), (1, 42, 6), offset=2), [0, 2], True, tags="noncontiguous offset keepdim")
    if timed:
        yield reduction(real(1024, 1024), [1], timed=True)


def _only_sum() -> Iterator[Row]:
    total = Operator("sum.dim_IntList", "reduction")
    yield total(real(0, 5), [0], tags="of-nothing")
    yield total(mask(4, 37), [1], tags="boolean")
    yield total(real(2048, 512), [0], tags="columns", timed=True)


def _max_dim() -> Iterator[Row]:
    """Short rows in float32, so that ties are almost impossible; torch documents that the first one wins."""
    max_dim = Operator("max.dim", "reduction multiple-outputs")
    yield max_dim(real(0, 5), 1, tags="empty")
    yield max_dim(real(1), 0, tags="one-element")
    yield max_dim(real(5, 13), -1, tags="odd")
    yield max_dim(strided(real(11, 6), (1, 11), offset=1), 0, True, tags="noncontiguous offset keepdim")
