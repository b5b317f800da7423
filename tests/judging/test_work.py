"""The work of a case: what any kernel must move and calculate, counted without running one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone import operators
from torchstone.judging import Reference, Work, draw_calls, work_of
from torchstone.judging.work import distinct_elements
from torchstone.schema import Argument, Case, DType, Integers, Normal, Scalar, Sequence, Tensor
from torchstone.suites import CaseQuery
from torchstone.suites.smoke import SmokeSuite

CPU = torch.device("cpu")


def real(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, Normal(), strides)


def index(*shape: int) -> Tensor:
    return Tensor(shape, "int64", Integers(0, 2))


def count(operator: str, *args: Argument, **kwargs: Argument) -> Work:
    return work_of(Case("test", f"aten.{operator}", args, kwargs))


def moved(work: Work) -> tuple[int, int]:
    return work.read_bytes, work.written_bytes


def test_an_elementwise_operator_reads_and_writes_every_element_once() -> None:
    assert count("relu.default", real(8, 4)) == Work(128, 128, 0, 32, "pointwise", "float32")
    assert moved(count("add.Tensor", real(8, 4), real(4))) == (128 + 16, 128)
    assert moved(count("gt.Tensor", real(8), real(8))) == (64, 8)


def test_an_expanded_dimension_is_read_once() -> None:
    assert count("add.Tensor", real(8, 4), real(8, 4, strides=(0, 1))).read_bytes == 128 + 16


def test_in_place_arguments_are_read_and_written() -> None:
    work = count("add_.Tensor", real(8), real(8))
    assert moved(work) == (64, 32)
    assert work.updated_bytes == 32
    assert work.flops == 8


def test_what_is_overwritten_is_not_read() -> None:
    assert moved(count("copy_.default", real(8), real(8))) == (32, 32)
    assert moved(count("add.out", real(8), real(8), out=real(8))) == (64, 32)
    assert moved(count("zero_.default", real(8))) == (0, 32)
    assert moved(count("zeros_like.default", real(8))) == (0, 32)


@pytest.mark.parametrize("operator", ["contiguous.default", "detach.default", "t.default", "empty_like.default"])
def test_views_and_mere_memory_move_nothing(operator: str) -> None:
    assert count(operator, real(4, 4)) == Work(0, 0, 0, 0, "none", None)


def test_a_copy_that_a_composed_operator_has_to_make_is_counted() -> None:
    assert moved(count("contiguous.default", real(4, 4, strides=(1, 4)))) == (64, 64)
    assert count("clone.default", real(4, 4)).flops == 0


def test_only_what_indices_can_touch_is_read() -> None:
    table = real(1000, 4)
    assert moved(count("embedding.default", table, index(3))) == (48 + 24, 48)
    assert moved(count("index_select.default", table, Scalar(0), index(3))) == (48 + 24, 48)
    assert moved(count("index.Tensor", table, Sequence((index(3),)))) == (48 + 24, 48)
    assert moved(count("gather.default", table, Scalar(0), index(2, 4))) == (32 + 64, 32)
    assert moved(count("index_add_.default", table, Scalar(0), index(3), real(3, 4))) == (48 + 24 + 48, 48)


def test_a_small_table_is_read_once_however_many_indices_there_are() -> None:
    assert count("embedding.default", real(2, 4), index(100)).read_bytes == 32 + 800


def test_matrix_products_are_counted_by_formula() -> None:
    assert count("mm.default", real(4, 5), real(5, 6)) == Work(200, 96, 0, 2 * 4 * 5 * 6, "formula", "float32")
    assert count("bmm.default", real(3, 4, 5), real(3, 5, 6)).flops == 3 * 2 * 4 * 5 * 6
    complex_product = count("mm.default", real(4, 5, dtype="complex64"), real(5, 6, dtype="complex64"))
    assert (complex_product.flops, complex_product.dtype) == (4 * 2 * 4 * 5 * 6, "float32")


def test_composed_operators_are_counted_by_what_they_are_composed_of() -> None:
    assert count("matmul.default", real(3, 4, 5), real(5, 6)).flops == 3 * 2 * 4 * 5 * 6
    assert count("linear.default", real(4, 5), real(6, 5), real(6)).flops == 2 * 4 * 5 * 6


def test_what_torch_has_no_formula_for_is_not_guessed() -> None:
    work = count("sum.dim_IntList", real(8, 4), Sequence((Scalar(1),)))
    assert (work.flops, work.flops_counted) == (0, "none")


def test_integers_have_no_flops() -> None:
    work = count("bitwise_not.default", index(8))
    assert (work.flops, work.dtype) == (0, None)


def test_results_whose_shape_hangs_on_values_count_as_nothing_written() -> None:
    assert moved(count("nonzero.default", real(8))) == (32, 0)


def test_a_dtype_as_argument_decides_what_is_written() -> None:
    assert moved(count("sum.dim_IntList", real(8, 4), Sequence((Scalar(1),)), dtype=DType("float64"))) == (128, 64)


@pytest.mark.parametrize(
    "case",
    [case for case in SmokeSuite().cases(CaseQuery(None, None, "cpu")) if case.timed or "noncontiguous" in case.tags],
    ids=lambda case: f"{case.operator}({case.label})",
)
def test_results_at_hand_give_the_same_count_as_tensors_without_memory(case: Case) -> None:
    (expected,) = Reference(case, CPU).expect_many(draw_calls(case, 1, 1, CPU), with_bounds=False)
    assert work_of(case, expected.new_tensors) == work_of(case)


layouts = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=4)


@settings(max_examples=200, deadline=None)
@given(layouts)
def test_distinct_elements_are_never_fewer_than_there_are_nor_more_than_memory(layout: list[tuple[int, int]]) -> None:
    shape, strides = [size for size, _ in layout], [stride for _, stride in layout]
    places = {
        sum(i * stride for i, stride in zip(position, strides, strict=True))
        for position in itertools.product(*(range(size) for size in shape))
    }
    found = distinct_elements(shape, strides)
    assert len(places) <= found <= math.prod(shape)
    assert found <= max(places, default=-1) + 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_the_order_of_dimensions_does_not_change_the_bytes_of_a_dense_tensor(
    shape: list[int], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    strides = operators.contiguous_strides(shape)
    permuted = real(*(shape[i] for i in order), strides=tuple(strides[i] for i in order))
    assert (
        moved(count("relu.default", permuted))
        == (4 * math.prod(shape),) * 2
        == moved(count("relu.default", real(*shape)))
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3))
def test_expanding_never_adds_bytes(shape: list[int], expanded: list[bool]) -> None:
    strides = operators.contiguous_strides(shape)
    shared = tuple(0 if zero else stride for stride, zero in zip(strides, expanded, strict=False))
    wide = count("relu.default", real(*shape, strides=shared))
    whole = count("relu.default", real(*shape))
    assert wide.read_bytes <= whole.read_bytes
    assert wide.written_bytes <= whole.written_bytes
