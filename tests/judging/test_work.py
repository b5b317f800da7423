"""The work of a case: what any kernel must move and calculate, counted without running one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone import operators
from torchstone.calls.attention_flops import attention_formulas
from torchstone.judging import Reference, Work, draw_calls, work_of
from torchstone.judging.work.flops_and_bytes import distinct_elements
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


QUERY, KEY, VALUE = real(2, 3, 16, 8), real(2, 3, 20, 8), real(2, 3, 20, 4)
FORWARD, BACKWARD = 2 * 2 * 3 * 16 * 20 * (8 + 4), 2 * 2 * 3 * 16 * 20 * (3 * 8 + 2 * 4)
ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"


def test_attention_is_counted_by_its_two_products() -> None:
    for operator in (f"{ON_CPU}.default", "scaled_dot_product_attention.default"):
        work = count(operator, QUERY, KEY, VALUE)
        assert (work.flops, work.flops_counted) == (FORWARD, "formula"), operator


def test_a_causal_call_is_counted_by_the_pairs_that_see_each_other() -> None:
    square = real(2, 3, 16, 8)
    seen = 16 * 17 // 2
    work = count(f"{ON_CPU}.default", square, square, square, Scalar(0.0), Scalar(True))
    assert work.flops == 2 * 2 * 3 * seen * (8 + 8)


def test_grouped_heads_are_counted_by_the_queries() -> None:
    narrow = real(2, 1, 20, 8)
    assert count("scaled_dot_product_attention.default", QUERY, narrow, narrow, enable_gqa=Scalar(True)).flops == (
        2 * 2 * 3 * 16 * 20 * (8 + 8)
    )


def test_gradients_of_attention_are_counted_with_the_forward_pass() -> None:
    square = real(2, 3, 16, 8)
    sums = real(2, 3, 16)
    args = (Sequence((square, Scalar(None))), square, square, square)
    work = work_of(Case("test", f"torchstone_grad.{ON_CPU}.default", args))
    assert work.flops == 2 * 2 * 3 * 16 * 16 * (2 + 5) * 8
    alone = count(f"{ON_CPU}_backward.default", square, *(square,) * 4, sums, Scalar(0.0), Scalar(False))
    assert (alone.flops, alone.flops_counted) == (2 * 2 * 3 * 16 * 16 * 5 * 8, "formula")


def test_every_operator_for_attention_has_a_formula_that_reads_its_arguments() -> None:
    names = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if "aten" in name}
    fused = {name for name in names if "scaled_dot_product" in name and "attention" in name}
    formulas = {packet.__name__: formula for packet, formula in attention_formulas().items()}
    assert fused <= set(formulas)
    for name, formula in formulas.items():
        given = [
            torch.empty(2, 4, 4, 8, device="meta") if argument.name in ("query", "key", "value") else None
            for argument in getattr(torch.ops.aten, name).default._schema.arguments
        ]
        assert formula(*given, out_val=None) == 2 * 2 * 4 * 16 * 8 * (5 if "backward" in name else 2), name


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        ("cdist.default", (real(8, 4), real(9, 4))),
        ("_fft_c2c.default", (real(8, dtype="complex64"), Sequence((Scalar(0),)), Scalar(0), Scalar(True))),
        ("linalg_inv_ex.default", (real(4, 4),)),
        ("sort.default", (real(64),)),
        ("mm.default", (index(4, 4), index(4, 4))),
    ],
)
def test_work_that_nobody_can_count_is_unknown(operator: str, args: tuple[Argument, ...]) -> None:
    work = count(operator, *args)
    assert (work.flops, work.flops_counted) == (0, "unknown")


@pytest.mark.parametrize("operator", ["fft_fftshift.default", "amax.default", "cumsum.default", "flip.default"])
def test_a_pass_over_the_memory_needs_no_count(operator: str) -> None:
    rest = {"cumsum": (Scalar(0),), "flip": (Sequence((Scalar(0),)),)}.get(operator.split(".")[0], ())
    assert count(operator, real(8, 4), *rest).flops_counted == "none"
