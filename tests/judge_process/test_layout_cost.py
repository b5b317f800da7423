"""Results that lie otherwise than torch's: what it takes to bring them there is the kernel's to pay."""

from __future__ import annotations

import pytest
import torch

from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.layout_cost import relaying_ns
from torchstone.judging import Reference, draw_call
from torchstone.schema import Case, Integers, Normal, Scalar, Sequence, Tensor

CPU = torch.device("cpu")
X = Tensor((256, 300), "float32", Normal())
TRANSPOSED = Case("test", "aten.transpose_copy.int", (X, Scalar(0), Scalar(1)))


def layout_of(case: Case) -> CallLayout:
    return CallLayout(case, Reference(case, CPU).expect(draw_call(case, 1, CPU)))


@pytest.mark.parametrize("seen", [set(), {(0, None)}, {(0, (256, 1))}])
def test_as_torch_lays_them_out_nothing_is_left_to_do(seen: set[tuple[int, tuple[int, ...] | None]]) -> None:
    assert relaying_ns(layout_of(TRANSPOSED), seen, CPU) == 0.0


def test_strides_that_were_only_turned_cost_a_copy_and_the_slowest_way_counts() -> None:
    turned = relaying_ns(layout_of(TRANSPOSED), {(0, (1, 300))}, CPU)
    assert turned > 1000.0
    assert relaying_ns(layout_of(TRANSPOSED), {(0, None), (0, (1, 300))}, CPU) > 0.0


def test_where_torch_keeps_the_order_of_an_argument_so_may_anyone() -> None:
    kept = Case("test", "aten.relu.default", (Tensor((64, 48), "float32", Normal(), (1, 64)),))
    assert relaying_ns(layout_of(kept), {(0, (1, 64))}, CPU) == 0.0
    assert relaying_ns(layout_of(kept), {(0, None)}, CPU) > 0.0


def test_a_dimension_of_one_lies_anyhow() -> None:
    row = Case("test", "aten.relu.default", (Tensor((1, 48), "float32", Normal()),))
    assert relaying_ns(layout_of(row), {(0, (7, 1))}, CPU) == 0.0


def test_who_lays_out_every_result_in_another_way_has_no_speed() -> None:
    ways = {(0, (300 + gap, 1)) for gap in range(9)}
    assert relaying_ns(layout_of(TRANSPOSED), ways, CPU) > 1e12


def test_where_shapes_may_depend_on_values_the_order_counts_and_not_the_length() -> None:
    columns = Sequence((Scalar(None), Tensor((200,), "int64", Integers(0, 300))))
    chosen = Case("test", "aten.index.Tensor", (X, columns))
    assert relaying_ns(layout_of(chosen), {(0, None), (0, (200, 1)), (0, (199, 1))}, CPU) == 0.0
    assert relaying_ns(layout_of(chosen), {(0, (1, 256))}, CPU) > 1000.0
    assert relaying_ns(layout_of(chosen), {(0, (1, length)) for length in range(200, 260)}, CPU) < 1e12


def test_torchs_own_order_costs_nothing_where_it_is_by_columns() -> None:
    found = Case("test", "aten.nonzero.default", (X,))
    assert relaying_ns(layout_of(found), {(0, (1, length)) for length in range(100, 160)}, CPU) == 0.0
