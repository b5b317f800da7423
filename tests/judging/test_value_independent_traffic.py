"""What of a result could have been written before the clock runs."""

from __future__ import annotations

import pytest
import torch

from torchstone.judging import Reference, preparable_share
from torchstone.schema import Argument, Case, Integers, Normal, Scalar, Sequence, Tensor

X = Tensor((64, 128), "float32", Normal())


def share(operator: str, *args: Argument) -> float:
    return preparable_share(Reference(Case("test", operator, args), torch.device("cpu")))


def sizes(*values: int) -> Sequence:
    return Sequence(tuple(Scalar(value) for value in values))


@pytest.mark.parametrize("operator", ["relu", "gelu", "sign", "floor", "exp", "neg"])
def test_what_depends_on_values_cannot_be_prepared(operator: str) -> None:
    assert share(f"aten.{operator}.default", X) < 0.03


def test_views_and_arguments_are_nobodys_to_prepare() -> None:
    assert share("aten.t.default", X) == 0
    assert share("aten.relu_.default", X) == 0


def test_a_gradient_that_is_zero_but_for_a_row_can() -> None:
    row = Tensor((128,), "float32", Normal())
    assert share("aten.select_backward.default", row, sizes(64, 128), Scalar(0), Scalar(5)) > 0.95


def test_of_a_triangle_half_is_known() -> None:
    square = Tensor((128, 128), "float32", Normal())
    assert share("aten.triu.default", square) == pytest.approx(1 / 3, abs=0.03)


def test_what_depends_on_nothing_can_be_prepared_altogether() -> None:
    assert share("aten.zeros_like.default", X) == 1.0
    assert 0.1 < share("aten.isnan.default", X) <= 0.2, "hardly ever True, but every value has to be read"


def test_rows_that_are_mostly_zero_can_though_each_is_something_now_and_then() -> None:
    rows, indices = Tensor((2048, 64), "float32", Normal()), Tensor((2048,), "int64", Integers(0, 16384))
    rest = (Scalar(16384), Scalar(-1), Scalar(False))
    assert share("aten.embedding_dense_backward.default", rows, indices, *rest) > 0.8
