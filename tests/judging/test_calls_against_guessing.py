from __future__ import annotations

from typing import Any

import pytest
import torch

from judging.cases import case, tensor
from torchstone.judging import (
    Agreement,
    Reference,
    calls_needed_against_guessing,
    compare,
    draw_call,
    draw_calls,
)
from torchstone.judging.calls_against_guessing import MOST_CALLS
from torchstone.schema import Booleans, Case, DType, Integers, JudgedDevice, Normal, Sequence, Uniform
from torchstone.suites import CaseQuery
from torchstone.suites.smoke import SmokeSuite

CPU = torch.device("cpu")


def needed(wanted: Case, seed: int = 0) -> int:
    return calls_needed_against_guessing(Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU)))


def booleans(*shape: int, p_true: float = 0.5) -> Any:
    return tensor(*shape, dtype="bool", fill=Booleans(p_true))


def answers(wanted: Case, calls: int = 200) -> list[torch.Tensor]:
    expected = Reference(wanted, CPU).expect_many(draw_calls(wanted, 1, calls, CPU))
    return [e.outputs[0].native for e in expected]


def test_one_call_of_the_usual_tensors_tells() -> None:
    for wanted in (
        case("aten.relu.default", tensor(5, 7)),
        case("aten.mm.default", tensor(4, 9, dtype="bfloat16"), tensor(9, 3, dtype="bfloat16")),
        case("aten.gt.Tensor", tensor(13, 17), tensor(13, 17)),
        case("aten.argmax.default", tensor(30, 40), 1),
        case("aten.add.Tensor", *[tensor(64, dtype="int32", fill=Integers(0, 9))] * 2),
        case("aten._foreach_add_.Scalar", Sequence((tensor(30), tensor(20))), 1.5),
        case("aten.exp.default", tensor(8)),
    ):
        assert needed(wanted) == 1, wanted.operator


def test_small_outputs_take_several_calls() -> None:
    assert needed(case("aten.sum.default", tensor(100))) == 3, "one float element counts for eight bits"
    of_relu = [needed(case("aten.relu.default", tensor(1)), seed) for seed in range(40)]
    assert sum(calls > 3 for calls in of_relu) >= 38, "half of its answers are 0"
    assert 3 <= needed(case("aten.argmax.default", tensor(1000))) <= 10
    assert needed(case("aten.dot.default", tensor(5, dtype="complex64"), tensor(5, dtype="complex64"))) == 2


@pytest.mark.parametrize("p_true", [0.001, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("operator", ["aten.any.default", "aten.all.default"])
def test_a_single_truth_takes_at_least_twenty_calls(operator: str, p_true: float) -> None:
    assert needed(case(operator, booleans(40, p_true=p_true))) >= 20


def test_a_constant_does_not_get_through() -> None:
    """``any`` of sparse booleans, always answered with True."""
    wanted = case("aten.any.default", booleans(35, p_true=0.05))
    reference, survived = Reference(wanted, CPU), 0
    for trial in range(30):
        expected = reference.expect_many(draw_calls(wanted, trial, needed(wanted, trial), CPU))
        right = (isinstance(compare(e, [torch.tensor(True)], e.inputs_after), Agreement) for e in expected)
        survived += all(right)
    assert survived == 0


def test_plain_results_count_too() -> None:
    assert needed(case("aten.equal.default", tensor(6), tensor(6))) >= 20


def test_every_output_must_tell() -> None:
    assert needed(case("aten.max.dim", tensor(6), 0)) >= 9, "the index has fewer values than the maximum"


def test_an_output_that_never_differs_asks_for_nothing_beside_one_that_does() -> None:
    """How often each row of random numbers comes up is once."""
    rows = case("aten.unique_dim.default", tensor(8, 5), 0, True, False, True)
    assert needed(rows) <= 3


def test_what_calls_cannot_tell_takes_one_and_what_seldom_differs_as_many_as_there_may_be() -> None:
    assert needed(case("aten.bernoulli.p", tensor(4), 0.5)) == 1
    assert needed(case("aten.empty_like.default", tensor(4))) == 1
    assert needed(case("aten.full.default", [2], 1.0, dtype=DType("float32"), device=JudgedDevice())) == 1
    assert needed(case("aten.zeros_like.default", tensor(4))) == MOST_CALLS
    assert needed(case("aten.relu.default", tensor(0, 5))) == 1
    assert needed(case("aten.mm.default", tensor(3, 0), tensor(0, 4))) == 1


def test_large_cases_are_not_sampled() -> None:
    assert needed(case("aten.any.default", booleans(1 << 19))) == 20
    assert needed(case("aten.sum.default", tensor(1 << 19))) == 3


def test_few_smoke_cases_take_more_than_the_calls_that_every_trial_makes() -> None:
    many = {wanted.label: needed(wanted) for wanted in SmokeSuite().cases(CaseQuery()) if not wanted.timed}
    assert sum(count > 3 for count in many.values()) <= len(many) // 10, many


# What makes answers differ.


@pytest.mark.parametrize("operator", ["aten.any.default", "aten.all.default"])
@pytest.mark.parametrize(
    "argument",
    [
        booleans(40),
        booleans(40, p_true=0.02),
        tensor(40),
        tensor(40, dtype="float16", fill=Uniform(-1.0, 2.0)),
        tensor(40, dtype="int32", fill=Integers(0, 5)),
        tensor(5, 8, dtype="int64", fill=Integers(-9, 9), strides=(1, 5), offset=2),
    ],
)
def test_any_and_all_are_not_always_the_same(operator: str, argument: Any) -> None:
    true = sum(bool(answer) for answer in answers(case(operator, argument)))
    assert 20 <= true <= 180


def test_ranges_without_a_zero_keep_it_out() -> None:
    for argument in (
        tensor(9, fill=Uniform(1.0, 2.0)),
        booleans(9, p_true=1.0),
        tensor(9, dtype="int8", fill=Integers(1, 3)),
    ):
        assert all(bool(answer) for answer in answers(case("aten.all.default", argument)))


@pytest.mark.parametrize("operator", ["isnan", "isinf", "isfinite", "isposinf"])
def test_special_values_are_there_to_be_classified(operator: str) -> None:
    found = torch.stack(answers(case(f"aten.{operator}.default", tensor(40))))
    assert 0.005 < float(found.float().mean()) < 0.995
    assert not any(
        bool(answer.any()) for answer in answers(case("aten.isnan.default", tensor(40, fill=Uniform(0.0, 1.0))))
    )


@pytest.mark.parametrize("operator", ["eq", "ne"])
def test_some_elements_are_equal(operator: str) -> None:
    found = torch.stack(answers(case(f"aten.{operator}.Tensor", tensor(5, 8), tensor(5, 8, strides=(1, 5)))))
    assert 0.1 < float(found.float().mean()) < 0.9


def test_or_equal_matters() -> None:
    wanted = case("aten.gt.Tensor", tensor(6, 6), tensor(6, 6))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    one, other = expected.call.args
    assert not isinstance(compare(expected, [one >= other], expected.inputs_after), Agreement)


def test_whole_tensors_are_equal_in_some_calls() -> None:
    found = answers(case("aten.equal.default", tensor(12), tensor(12)))
    assert 10 <= sum(map(bool, found)) <= 100


def test_expanded_views_and_other_shapes_are_left_alone() -> None:
    for other in (tensor(8), tensor(5, 8, strides=(0, 1)), tensor(5, 8, dtype="float64", fill=Normal())):
        assert not torch.stack(answers(case("aten.eq.Tensor", tensor(5, 8), other), 20)).any()
