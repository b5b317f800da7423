"""Torch's own results, asked for again."""

from __future__ import annotations

import pytest
import torch

from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import Evaluation, Evaluator
from torchstone.judging import (
    Expected,
    Reference,
    agrees_on_contiguous_memory,
    agrees_on_empty_arguments,
    agrees_with_itself,
    declares_nondeterminism,
    draw_call,
    has_result_dtypes_of,
)
from torchstone.judging.reference.unused_randomness import draws_nothing
from torchstone.schema import Argument, Case, Integers, Normal, Scalar, Sequence, Tensor

CPU = torch.device("cpu")
CASE = Case("test", "aten.exp.default", (Tensor((33, 65), "float32", Normal()),))


def test_who_repeats_itself_does() -> None:
    (expected,) = Reference(CASE, CPU).expect_many([draw_call(CASE, 7, CPU)])
    assert agrees_with_itself(expected, CPU, CPU)


def test_who_does_not_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = Reference(CASE, CPU).expect_many([draw_call(CASE, 7, CPU)])
    assert expected.values()
    natives = Evaluator.natives
    other = draw_call(CASE, 8, CPU)

    def otherwise(self: Evaluator, calls: list[DrawnCall]) -> list[Evaluation]:
        return natives(self, [other for _ in calls])

    monkeypatch.setattr(Evaluator, "natives", otherwise)
    assert not agrees_with_itself(expected, CPU, CPU)


def test_nobody_expects_it_of_random_numbers() -> None:
    case = Case("test", "aten.rand_like.default", CASE.args)
    (expected,) = Reference(case, CPU).expect_many([draw_call(case, 7, CPU)])
    assert agrees_with_itself(expected, CPU, CPU)


def expected_of(operator: str, *arguments: Argument) -> Expected:
    wanted = Case("test", operator, arguments)
    return Reference(wanted, CPU).expect(draw_call(wanted, 7, CPU))


def real(*shape: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> Tensor:
    return Tensor(shape, "float32", Normal(), strides, offset)


def test_torch_is_asked_whether_its_threads_race() -> None:
    racing = expected_of("aten.put_.default", real(12), Tensor((3,), "int64", Integers(0, 12)), real(3))
    assert declares_nondeterminism(racing, CPU, CPU)
    assert not declares_nondeterminism(expected_of("aten.mm.default", real(12, 9), real(9, 5)), CPU, CPU)
    assert not torch.are_deterministic_algorithms_enabled()


def test_torch_agrees_with_itself_on_plain_memory_as_a_rule() -> None:
    transposed = real(12, 9, strides=(1, 12), offset=3)
    assert agrees_on_contiguous_memory(expected_of("aten.mm.default", transposed, real(9, 5, offset=2)), CPU, CPU)
    assert agrees_on_contiguous_memory(expected_of("aten.add_.Tensor", transposed, real(9, strides=(2,))), CPU, CPU)
    assert agrees_on_contiguous_memory(expected_of("aten.relu.default", real(12, 9)), CPU, CPU)
    assert agrees_on_contiguous_memory(expected_of("aten.rand_like.default", transposed), CPU, CPU)


def test_attention_with_a_step_in_the_last_dimension_does_not() -> None:
    query, plain = real(2, 4, 21, 9, strides=(1512, 378, 18, 2), offset=7), real(2, 4, 21, 9)
    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert not agrees_on_contiguous_memory(expected_of(name, query, plain, plain), CPU, CPU)
    assert agrees_on_contiguous_memory(expected_of(name, plain, plain, plain), CPU, CPU)


def test_bits_that_differ_by_where_memory_begins_are_not_drawn() -> None:
    """Equal calls lie at other addresses in a batch, and attention then begins its sums elsewhere: it draws nothing."""
    odd = [real(1, 3, 33, 10, strides=strides, offset=3) for strides in (None, (10, 10, 30, 1), None)]
    for call in (odd, [real(1, 3, 33, 10, offset=offset) for offset in (1, 3, 2)]):
        assert draws_nothing(expected_of("aten._scaled_dot_product_flash_attention_for_cpu.default", *call))
    assert not draws_nothing(expected_of("aten.rand_like.default", real(12, 9)))
    assert not draws_nothing(expected_of("aten.native_dropout.default", real(5, 8), Scalar(0.5), Scalar(True)))


def test_what_is_written_to_other_memory_is_compared_there(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = expected_of("aten.relu_.default", real(12, 9, strides=(1, 12), offset=3))
    natives = Evaluator.natives

    def otherwise(self: Evaluator, calls: list[DrawnCall]) -> list[Evaluation]:
        found = natives(self, calls)
        for tensor in found[0].tensors.values():
            tensor.sub_(1.0)
        return found

    monkeypatch.setattr(Evaluator, "natives", otherwise)
    assert not agrees_on_contiguous_memory(expected, CPU, CPU)


def test_a_variant_returns_what_the_stated_case_does() -> None:
    def dropout(rows: int) -> Expected:
        return expected_of("aten.native_dropout.default", real(rows, 8), Scalar(0.5), Scalar(True))

    assert has_result_dtypes_of(dropout(3), dropout(5).outputs)
    assert not has_result_dtypes_of(dropout(0), dropout(5).outputs), "its mask is none"


def test_lists_may_be_longer() -> None:
    short, long = (expected_of("aten.unbind.int", real(size, 8)) for size in (2, 5))
    assert has_result_dtypes_of(long, short.outputs)
    assert has_result_dtypes_of(short, long.outputs)


def test_the_mean_of_nothing_is_no_answer_and_its_sum_is() -> None:
    def layer_norm(columns: int) -> Expected:
        weights = [real(columns)] * 2
        return expected_of(
            "aten.native_layer_norm.default", real(4, columns), Sequence((Scalar(columns),)), *weights, Scalar(1e-5)
        )

    assert not agrees_on_empty_arguments(layer_norm(0))
    assert agrees_on_empty_arguments(layer_norm(3))
    assert agrees_on_empty_arguments(expected_of("aten.sum.dim_IntList", real(4, 0), Sequence((Scalar(1),))))


def test_a_product_of_nothing_has_no_shape_to_hold_against_anyone() -> None:
    assert not agrees_on_empty_arguments(expected_of("aten.addmv.default", real(1), real(5, 0), real(0)))
    assert agrees_on_empty_arguments(expected_of("aten.addmv.default", real(5), real(5, 3), real(3)))
