"""A faster kernel with a 0-dimensional result, from the API to the verdict: it is timed in chained calls, too."""

from __future__ import annotations

import pytest

import torchstone

ARGMAX = "aten.argmax.default"
BY_ROWS = """
def kernel(x):
    rows = x.amax(1)  # vectorised in torch, unlike argmax over everything: several times as fast on one thread
    row = rows.argmax()
    return row * x.shape[1] + x[row].argmax()
"""


@pytest.mark.slow
def test_a_faster_kernel_with_a_scalar_result_is_judged() -> None:
    argument = torchstone.Tensor((512, 512), "float32", torchstone.Normal())
    case = torchstone.Case("tests", ARGMAX, (argument,), timed=True, jitter=False, layouts=False)
    (record,) = torchstone.measure(BY_ROWS, ARGMAX, cases=(case,), device="cpu", effort="quick").records
    assert record.verdict.__struct_config__.tag == "agrees", record.verdict
    assert record.measurement is not None
    assert "chained" in {block.way for block in record.measurement.blocks}
