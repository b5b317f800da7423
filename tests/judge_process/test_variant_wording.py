"""How a hidden variant is told apart from the stated case, in words."""

from __future__ import annotations

import pytest

from torchstone.judge_process.variant_wording import difference, scale
from torchstone.judge_process.verdict_wording import about_inputs, on_variant
from torchstone.schema import (
    Argument,
    Case,
    Cheated,
    Crashed,
    Disagrees,
    Integers,
    Normal,
    Replay,
    Scalar,
    Sequence,
    Tensor,
    TimedOut,
    Unsupported,
    explain,
)


def x(*shape: int, **others: object) -> Tensor:
    return Tensor(shape, "float32", Normal(), **others)  # type: ignore[arg-type]


def case(operator: str, *arguments: Argument, **named: Argument) -> Case:
    return Case("test", operator, arguments, named)


RELU = case("aten.relu.default", x(5, 7))
ADD = case("aten.add.Tensor", x(5, 7), x(7), alpha=Scalar(2))
CAT = case("aten.cat.default", Sequence((x(2, 3), x(2, 3))), Scalar(0))
INDEX = case("aten.index_select.default", x(4, 3), Scalar(0), Tensor((5,), "int64", Integers(0, 4)))


@pytest.mark.parametrize(
    ("stated", "variant", "words"),
    [
        (RELU, case("aten.relu.default", x(2, 2)), "shape [2, 2]"),
        (RELU, case("aten.relu.default", x(5, 7, strides=(1, 5))), "strides [1, 5]"),
        (
            RELU,
            case("aten.relu.default", x(5, 8, strides=(16, 2), offset=3)),
            "shape [5, 8], strides [16, 2] and storage offset 3",
        ),
        (case("aten.relu.default", x(5, 7, strides=(1, 5))), RELU, "contiguous memory"),
        (RELU, case("aten.relu.default", Tensor((5, 7), "float16", Normal())), "dtype float16"),
        (RELU, RELU, "the same arguments"),
        (ADD, case("aten.add.Tensor", x(2, 3), x(3), alpha=Scalar(2)), "shape [2, 3] for self, shape [3] for other"),
        (ADD, case("aten.add.Tensor", x(3), x(3), alpha=Scalar(2)), "shape [3] for self and other"),
        (ADD, case("aten.add.Tensor", x(5, 7), x(7), alpha=Scalar(0.5)), "alpha 0.5 instead of 2"),
        (ADD, case("aten.add.Tensor", x(5, 7), x(7)), "no alpha"),
        (case("aten.add.Tensor", x(2), x(2)), case("aten.add.Tensor", x(2), x(2), alpha=Scalar(3)), "alpha 3"),
        (CAT, case("aten.cat.default", Sequence((x(2, 3), x(0, 3))), Scalar(0)), "shape [0, 3] for tensors[1]"),
        (CAT, case("aten.cat.default", Sequence((x(2, 3), x(2, 3))), Scalar(-1)), "dim -1 instead of 0"),
        (
            INDEX,
            case("aten.index_select.default", x(4, 3), Scalar(0), Tensor((5,), "int64", Integers(0, 2))),
            "values from 0 to 1 for index",
        ),
    ],
)
def test_a_variant_is_told_by_what_differs(stated: Case, variant: Case, words: str) -> None:
    assert difference(stated, variant) == words


def test_of_many_differences_a_few_are_named() -> None:
    stated = case("aten.cat.default", Sequence(tuple(x(size) for size in range(1, 9))))
    variant = case("aten.cat.default", Sequence(tuple(x(size + 1) for size in range(1, 9))))
    assert difference(stated, variant).endswith("shape [5] for tensors[3] and 4 more differences")


def test_every_failure_on_a_variant_says_so() -> None:
    small = case("aten.relu.default", x(2))
    told = "also tried with shape [2], and there: "
    for verdict in (
        Disagrees("check", "values", "no"),
        Crashed("check", "exit", "no"),
        Cheated("check", "late-work", "no"),
        TimedOut("check", 10.0, 11.0),
    ):
        found = on_variant(verdict, RELU, small)
        assert told in explain(found)
    assert explain(on_variant(Unsupported("candidate", "no"), RELU, small)) == f"candidate: {told}no"


def test_messages_say_what_the_inputs_were_like() -> None:
    tiny = case("aten.relu.default", Tensor((5, 7), "float32", Normal(0.0, 2.0**-40)))
    assert about_inputs(Replay(RELU, 1), RELU) == ""
    assert about_inputs(Replay(RELU, 1, planted="hundreds"), RELU) == " (inputs included values up to ±100)"
    assert about_inputs(Replay(RELU, 1, planted="numbers once"), RELU).startswith(" (inputs included 0, ")
    assert about_inputs(Replay(tiny, 1), RELU) == f" ({scale(RELU, tiny)})" == " (inputs were multiplied by 2**-40)"


def test_the_stage_of_a_first_call_is_called_so() -> None:
    assert explain(Crashed("compile", "exit", "no")) == "first call: no"
    assert explain(Crashed("check", "exit", "no")) == "check: no"
