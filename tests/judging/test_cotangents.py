from __future__ import annotations

from typing import Any

import pytest
import torch

from judging.cases import case, plans_for, tensor
from torchstone.gradient_operators import Differentiated
from torchstone.judging import Mismatch, Reference, compare_many, draw_call, draw_calls, plant, planted_calls
from torchstone.judging.plans.cotangents import LargeCotangents, ZeroCotangents
from torchstone.schema import Case, Normal
from torchstone.suites.gradient_cases import backward_case

CPU = torch.device("cpu")
MUL = backward_case(case("aten.mul.Tensor", tensor(12, 9), tensor(12, 9)))
SOFTMAX = backward_case(case("aten._softmax.default", tensor(6, 8), -1, False))


def cotangent(wanted: Case, plan: str, seed: int) -> torch.Tensor:
    return plant(draw_call(wanted, seed, CPU), plan).tensors[0].view


def passes(wanted: Case, function: Any, judgements: int = 15) -> int:
    found = 0
    for seed in range(judgements):
        (usual,) = Reference(wanted, CPU).expect_many(draw_calls(wanted, seed, 1, CPU))
        calls = planted_calls(usual, seed)
        assert {ZeroCotangents.name, LargeCotangents.name} <= {each.call.planted for each in calls}
        outputs = [Differentiated(function)(*each.call.args, **each.call.kwargs) for each in calls]
        after = [[each.storage for each in expected.call.tensors] for expected in calls]
        found += not isinstance(compare_many(calls, outputs, after), Mismatch)
    return found


class _Product(torch.autograd.Function):
    careless = ""

    @staticmethod
    def forward(ctx, a, b):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, counts):  # type: ignore[no-untyped-def]
        a, b = ctx.saved_tensors
        if _Product.careless == "zeros":
            counts = torch.where(counts == 0, 1.0, counts)
        if _Product.careless == "samples":
            counts = counts * ~((counts == 0).all(1, keepdim=True).cumsum(0) > 0)
        if _Product.careless == "large":
            counts = counts.clamp(-500, 500)
        return counts * b, counts * a


@pytest.mark.parametrize(("careless", "most"), [("", 15), ("zeros", 0), ("samples", 9), ("large", 0)])
def test_who_is_wrong_where_nothing_or_much_is_counted_is_told(
    careless: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Product, "careless", careless)
    found = passes(MUL, _Product.apply)
    assert found == most if careless != "samples" else found <= most


def test_unused_leaves_out_elements_and_samples_and_now_and_then_all_but_one() -> None:
    found = [cotangent(MUL, ZeroCotangents.name, seed) for seed in range(40)]
    assert all(bool((each == 0).any()) and bool((each != 0).any()) for each in found)
    assert sum(bool((each == 0).all(1).any()) for each in found) > 20
    assert 1 <= sum(int((each != 0).sum()) == 1 for each in found) <= 20


@pytest.mark.parametrize(("dtype", "least"), [("float32", 2.0**10), ("bfloat16", 2.0**10), ("float16", 2.0**4)])
def test_loud_is_as_loud_as_a_scaled_loss(dtype: Any, least: float) -> None:
    wanted = backward_case(case("aten.relu.default", tensor(12, 9, dtype=dtype)))
    for seed in range(10):
        drawn, planted = draw_call(wanted, seed, CPU).tensors[0].view, cotangent(wanted, LargeCotangents.name, seed)
        factor = planted.double().abs().max() / drawn.double().abs().max()
        assert factor >= least
        assert torch.isfinite(planted).all()


def test_only_gradients_get_them() -> None:
    assert not {ZeroCotangents.name, LargeCotangents.name} & set(
        plans_for(case("aten.mul.Tensor", tensor(4), tensor(4)), once=False)
    )


def test_who_computes_a_gradient_from_what_was_rounded_is_right() -> None:
    """Two textbook formulas, where results are nearly 1."""
    steep = backward_case(case("aten._softmax.default", tensor(3, 4, 7, fill=Normal(0.0, 30.0)), 0, False))
    saturated = backward_case(case("aten.tanh.default", tensor(40, fill=Normal(0.0, 5.0))))
    for seed in range(150):
        for wanted, gradient in (
            (steep, lambda g, y: y * (g - (g * y).sum(0, keepdim=True))),
            (saturated, lambda g, y: g * (1 - y * y)),
        ):
            expected = Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU))
            result = expected.outputs[0].native
            outputs = [result, gradient(expected.call.tensors[0].view, result)]
            found = compare_many([expected], [outputs], [[each.storage for each in expected.call.tensors]])
            assert not isinstance(found, Mismatch), found.message
