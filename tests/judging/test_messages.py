"""What a mismatch says to a person: digits that differ, the inputs at the worst element, what the inputs were like."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch

from judging.cases import case, plans_for, tensor
from torchstone import registry
from torchstone.calls.draw_arguments import DrawnCall, calls_on
from torchstone.judging import Mismatch, Reference, ResultPosition, compare, draw_call, inputs_of, plant
from torchstone.judging.compare.input_wording import inputs_at
from torchstone.judging.number_wording import shown_apart, shown_factor
from torchstone.judging.plans import PLANS
from torchstone.schema import Case, Scalar, Sequence
from torchstone.suites.base import CaseQuery

CPU = torch.device("cpu")
OUTPUT = ResultPosition("output", 0)


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (1.0, 1.25, ("1", "1.25")),
        (1.0000001192092896, 1.0, ("1.00000012", "1")),
        (1.0000052, 1.0000049, ("1.0000052", "1.0000049")),
        (math.nan, 2.0, ("nan", "2")),
        (math.inf, 65504.0, ("inf", "65504")),
        (7, 8, ("7", "8")),
        (1 + 1j, 1 + 1.0000000001j, ("1+1j", "1+1.0000000001j")),
        (2.0, 2.0, ("2", "2")),
    ],
)
def test_numbers_that_differ_are_shown_with_the_digits_in_which_they_do(
    one: complex, other: complex, shown: tuple[str, str]
) -> None:
    assert shown_apart(one, other) == shown


def test_the_factor_over_the_allowed_error_is_never_shown_as_one() -> None:
    assert shown_factor(0.25, 1.25e-7) == " (2e+06 times that)"
    assert shown_factor(1138.0, 1.0) == " (1,140 times that)"
    assert shown_factor(938.2, 1.0) == " (938 times that)"
    assert shown_factor(1.0001, 1.0) == " (1.0001 times that)"
    assert shown_factor(math.nan, 1.0) == shown_factor(1.0, 0.0) == ""


def given(operator: str, *arguments: object, values: tuple[list[float], ...]) -> DrawnCall:
    """A call with these values."""
    stated = case(operator, *arguments)  # type: ignore[arg-type]
    return calls_on(stated, [torch.tensor([each]) for each in values], 0, 1, CPU)[0]


def test_inputs_of_a_pointwise_operator_are_those_broadcast_to_the_element() -> None:
    call = given("aten.add.Tensor", tensor(2, 3), tensor(3), values=([0.0, 1.0, 2.0, 3.0, 4.0, 5.5], [7.0, 8.0, 0.1]))
    assert inputs_at(call, OUTPUT, (1, 2), (2, 3)) == "inputs there: self = 5.5, other = 0.100000001"


def test_the_first_mismatch_of_a_process_imports_no_library_for_algebra() -> None:
    """Sympy takes a second to import, and a judge that shares its device lets others wait meanwhile."""
    program = """
import sys, torch
from judging.cases import case, tensor
from torchstone.calls.draw_arguments import calls_on
from torchstone.judging import Reference, compare
CPU = torch.device("cpu")
stated = case("aten.add.Tensor", tensor(2, 3), tensor(3))
(call,) = calls_on(stated, [torch.rand(1, 6), torch.rand(1, 3)], 0, 1, CPU)
expected = Reference(stated, CPU).expect(call)
assert "inputs there" in compare(expected, [torch.zeros(2, 3)], [each.storage for each in call.tensors]).message
assert "sympy" not in sys.modules
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_scalar_arguments_are_named_with_the_inputs() -> None:
    call = given("aten.clamp.default", tensor(2), -1.5, 2.0, values=([3.0, -4.0],))
    assert inputs_at(call, OUTPUT, (1,), (2,)) == "inputs there: self = -4, min = -1.5, max = 2.0"


def test_of_other_operators_the_arguments_are_named() -> None:
    call = given("aten.sum.dim_IntList", tensor(2, 3, strides=(1, 2)), values=([1.0, -2.5, 0.0, 4.0, 3.0, 2.0],))
    call = draw_from(call, (*call.case.args, Sequence((Scalar(1),))))
    told = inputs_at(call, OUTPUT, (1,), (2,))
    assert told == "arguments: self float32 [2, 3] strides [1, 2] (from -2.5 to 4), dim [1]"


def test_the_tensors_of_a_list_are_numbered_and_nan_is_told() -> None:
    pair = Case("test", "aten.cat.default", (Sequence((tensor(2), tensor(1))),))
    call = calls_on(pair, [torch.tensor([[1.0, 2.0]]), torch.tensor([[math.nan]])], 0, 1, CPU)[0]
    told = inputs_at(call, OUTPUT, (0,), (3,))
    assert told == "arguments: tensors[0] float32 [2] (from 1 to 2), tensors[1] float32 [1] (with NaN)"


def draw_from(call: DrawnCall, arguments: tuple[object, ...]) -> DrawnCall:
    stated = Case("test", call.case.operator, arguments)  # type: ignore[arg-type]
    return calls_on(stated, [each.storage.unsqueeze(0) for each in call.tensors], 0, 1, CPU)[0]


def test_a_written_argument_is_described_though_its_memory_has_gaps() -> None:
    stated = Case("test", "aten.add_.Tensor", (tensor(3, strides=(2,)), tensor(3)))
    expected = Reference(stated, CPU).expect(draw_call(stated, 3, CPU))
    after = [each.clone() for each in expected.inputs_after]
    after[0][0] += 1.0
    outputs = [output.native for output in expected.outputs]
    found = compare(expected, outputs, after)
    assert isinstance(found, Mismatch)
    assert "arguments: self float32 [3] strides [2] (from " in found.message


def test_every_plan_that_a_record_can_name_has_a_phrase() -> None:
    phrases = [plan.phrase for plan in PLANS]
    assert len(phrases) > 30
    assert all(phrase and phrase == phrase.strip() for phrase in phrases)


def test_plans_of_real_cases_have_phrases() -> None:
    cases = list(registry.suites.factory("smoke")().cases(CaseQuery()))
    plans = {plan for each in cases for once in (True, False) for plan in plans_for(each, once=once)}
    assert any(PLANS.named(plan).distinct for plan in plans)
    assert all(inputs_of(plan) for plan in plans)
    assert inputs_of("") == ""


def test_the_phrase_of_hundreds_names_the_values_that_are_planted() -> None:
    call = plant(draw_call(case("aten.relu.default", tensor(4096)), 5, CPU), "hundreds")
    largest = call.args[0].abs().max().item()
    assert inputs_of("hundreds") == "inputs included values up to ±100"
    assert 90 < largest <= 100
