"""Pointwise operators on NaN and infinities: held to torch where torch stands by its answer, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.judging import (
    Agreement,
    Expected,
    Mismatch,
    Reference,
    compare_many,
    draw_calls,
    plant,
    planted_calls,
)
from torchstone.judging.plans.nonfinite_pointwise_inputs import NonFiniteInputs
from torchstone.schema import Argument, Case, DType, Integers, Normal, Sequence, Tensor, Uniform, gradient_operator

CPU = torch.device("cpu")
SEEDS = range(4)


def real(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype, Normal())


def planted(operator: str, *args: Argument, seed: int = 1, **kwargs: Argument) -> list[Expected]:
    case = Case("test", operator, args, kwargs)
    (usual,) = Reference(case, CPU).expect_many(draw_calls(case, seed, 1, CPU), with_bounds=True)
    found = planted_calls(usual, seed, non_finite=True)
    return [expected for expected in found if expected.call.planted == NonFiniteInputs.name]


def verdict(expected: Expected, kernel: Callable[..., torch.Tensor]) -> Agreement | Mismatch:
    return compare_many([expected], [[kernel(*expected.call.args)]], [expected.inputs_after])


def by_hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where(large == 0, large, small / large)
    return torch.where(torch.isinf(large), large, large * torch.sqrt(1 + ratio * ratio))


WRONG: dict[str, tuple[str, int, Callable[..., torch.Tensor]]] = {
    "a product": ("aten.relu.default", 1, lambda x: x * (x > 0)),
    "drops NaN": ("aten.relu.default", 1, lambda x: torch.where(x > 0, x, torch.zeros_like(x))),
    "drops NaN of a pair": ("aten.maximum.default", 2, lambda x, y: torch.fmax(x, y)),
    "exp overflows": ("aten.tanh.default", 1, lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)),
    "NaN is never larger": ("aten.ge.Tensor", 2, lambda x, y: ~(x < y)),
}
RIGHT: dict[str, tuple[str, int, Callable[..., torch.Tensor]]] = {
    "clamp": ("aten.relu.default", 1, lambda x: x.clamp(min=0)),
    "keeps NaN": ("aten.relu.default", 1, lambda x: torch.where(x < 0, torch.zeros_like(x), x)),
    "the limit of silu": ("aten.silu.default", 1, lambda x: torch.where(x == -torch.inf, 0.0, x * torch.sigmoid(x))),
    "silu by a quotient": ("aten.silu.default", 1, lambda x: x / (1 + torch.exp(-x))),
    "NaN and infinity meet": ("aten.hypot.default", 2, by_hypot),
    "a sum": ("aten.add.Tensor", 2, lambda x, y: y + x),
    "a subtraction of its opposite": ("aten.sub.Tensor", 2, lambda x, y: x + -y),
    "in float64": ("aten.exp.default", 1, lambda x: x.double().exp().float()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_that_is_wrong_at_nan_or_infinity_is_refused(name: str) -> None:
    operator, count, kernel = WRONG[name]
    (expected,) = planted(operator, *(real(17, 19),) * count)
    assert isinstance(verdict(expected, kernel), Mismatch)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_kernel_is_not(name: str, seed: int) -> None:
    operator, count, kernel = RIGHT[name]
    (expected,) = planted(operator, *(real(40, 50),) * count, seed=seed)
    found = verdict(expected, kernel)
    assert isinstance(found, Agreement), found.message


def test_all_three_kinds_come_where_there_is_room_and_are_drawn_again_for_a_replay() -> None:
    (expected,) = planted("aten.relu.default", real(5))
    values = expected.call.tensors[0].view
    assert {str(value) for value in values.tolist()} >= {"nan", "inf", "-inf"}
    call = expected.call
    again = plant(draw_calls(call.case, call.seed, call.count, CPU)[call.index], call.planted)
    assert torch.equal(again.tensors[0].view.view(torch.int32), values.view(torch.int32))


def test_a_single_number_beside_others_stays_finite() -> None:
    (expected,) = planted("aten.add.Tensor", real(5, 6), real(1))
    assert bool(torch.isfinite(expected.call.tensors[1].view).all())
    assert not bool(torch.isfinite(expected.call.tensors[0].view).all())


@pytest.mark.parametrize(
    ("operator", "args", "kwargs"),
    [
        ("aten.sum.default", (real(8),), {}),
        ("aten.relu.default", (Tensor((8,), "int32", Integers(0, 9)),), {}),
        ("aten.acosh.default", (Tensor((8,), "float32", Uniform(1.0, 3.0)),), {}),
        ("aten._to_copy.default", (real(8),), {"dtype": DType("int32")}),
        (gradient_operator("aten.relu.default"), (Sequence((real(8),)), real(8)), {}),
        ("aten.remainder.Tensor", (real(8), real(8)), {}),
    ],
    ids=["not pointwise", "whole numbers", "a stated range", "to whole numbers", "a gradient", "compiled otherwise"],
)
def test_what_has_no_defined_answer_is_not_asked(
    operator: str, args: tuple[Argument, ...], kwargs: dict[str, Argument]
) -> None:
    assert planted(operator, *args, **kwargs) == []


def test_nobody_meets_them_unasked() -> None:
    case = Case("test", "aten.relu.default", (real(8),))
    (usual,) = Reference(case, CPU).expect_many(draw_calls(case, 1, 1, CPU), with_bounds=True)
    assert NonFiniteInputs.name not in {expected.call.planted for expected in planted_calls(usual, 1)}
