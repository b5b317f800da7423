"""Smoke cases of matrix products, softmax and layer norm."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.schema import Normal
from torchstone.suites.smoke.rows import BF16, HALVES, Operator, Row, real, strided


def rows() -> Iterator[Row]:
    """All rows of this table, in the order of the suite."""
    yield from _matmul()
    yield from _softmax()
    yield from _layer_norm()


def _matmul() -> Iterator[Row]:
    mm = Operator("mm", "matmul")
    yield mm(real(0, 5), real(5, 3), tags="empty")
    yield mm(real(3, 0), real(0, 4), tags="of-nothing")
    yield mm(real(1, 1), real(1, 1), tags="one-element")
    yield mm(real(17, 65), real(65, 33), tags="odd", floats=HALVES)
    yield mm(real(24, 40), strided(real(40, 12), (1, 40), offset=5), tags="noncontiguous offset")
    yield mm(real(256, 256), real(256, 256), timed=True)
    addmm = Operator("addmm", "matmul")
    yield addmm(real(4), real(0, 3), real(3, 4), tags="empty broadcast")
    yield addmm(real(1), real(1, 1), real(1, 1), tags="one-element")
    yield addmm(real(29), real(13, 41), real(41, 29), tags="odd broadcast", floats=BF16)
    yield addmm(real(6, 10), strided(real(6, 8), (1, 6)), real(8, 10), tags="noncontiguous", beta=0.5, alpha=2)
    yield addmm(real(384), real(128, 256), real(256, 384), tags="broadcast", timed=True)


def _softmax() -> Iterator[Row]:
    softmax = Operator("_softmax", "softmax")
    yield softmax(real(0, 7), -1, False, tags="empty")
    yield softmax(real(1, 1), 1, False, tags="one-element")
    yield softmax(real(5, 129), -1, False, tags="odd", floats=HALVES)
    yield softmax(real(3, 4, 7, fill=Normal(0.0, 30.0)), 0, False, tags="large-values")
    yield softmax(strided(real(12, 23), (1, 12), offset=4), 1, False, tags="noncontiguous offset")
    yield softmax(real(512, 512), -1, False, timed=True)


def _layer_norm() -> Iterator[Row]:
    eps = 1e-5
    layer_norm = Operator("native_layer_norm", "layer-norm multiple-outputs")
    yield layer_norm(real(0, 8), [8], real(8), real(8), eps, tags="empty")
    yield layer_norm(real(1, 1), [1], real(1), real(1), eps, tags="one-element")
    yield layer_norm(real(6, 65), [65], real(65), real(65), eps, tags="odd", floats=HALVES)
    yield layer_norm(real(2, 5, 12), [5, 12], None, None, eps, tags="without-weight")
    yield layer_norm(
        strided(real(10, 24), (1, 10), offset=2), [24], real(24), real(24), eps, tags="noncontiguous offset"
    )
    yield layer_norm(real(512, 768), [768], real(768), real(768), eps, timed=True)
