from __future__ import annotations

import random

import pytest
import torch

from judging.cases import case, tensor
from torchstone.gradient_operators import REQUESTED_GRADIENTS, Differentiated
from torchstone.judging import Agreement, Mismatch, Reference, compare, draw_call, hidden_cases
from torchstone.judging.variants.gradient_variants import has_correct_digits, with_varied_cotangents
from torchstone.judging.variants.pool import VariantPool
from torchstone.schema import Case, Scalar, Sequence, Tensor

CPU = torch.device("cpu")
MM = case("torchstone_grad.mm.default", [tensor(6, 5)], tensor(6, 8), tensor(8, 5))
SOFTMAX = case("torchstone_grad._softmax.default", [tensor(6, 8)], tensor(6, 8), -1, False)


def many(wanted: Case) -> list[Case]:
    return [with_varied_cotangents(wanted, random.Random(seed), frozen=seed % 2 == 0) for seed in range(60)]


def cotangents(wanted: Case) -> tuple[object, ...]:
    assert isinstance(wanted.args[0], Sequence)
    return wanted.args[0].items


def test_cotangents_are_expanded_wholly_and_in_part_and_turned() -> None:
    steps = {each.strides for variant in many(MM) for each in cotangents(variant) if isinstance(each, Tensor)}
    assert {(0, 0), (0, 1), (1, 0), (1, 6), None} <= steps
    assert any(each is not None and each[0] > 6 and each[1] == 1 for each in steps), "rows of a larger one"


def test_some_arguments_do_not_ask_and_some_always_do() -> None:
    asking = {variant.kwargs.get(REQUESTED_GRADIENTS) for variant in many(MM)}
    assert asking == {None, Sequence((Scalar(0),)), Sequence((Scalar(1),))}


def test_of_several_results_some_count() -> None:
    rows = tensor(6, 1)
    norm = case(
        "torchstone_grad.native_layer_norm.default", [tensor(6, 8), rows, rows], tensor(6, 8), [8], None, None, 1.0
    )
    counts = [[isinstance(each, Tensor) for each in cotangents(variant)] for variant in many(norm)]
    assert all(any(each) for each in counts)
    assert any(not all(each) for each in counts)


def test_only_who_asks_gets_a_gradient() -> None:
    a, b, counts = torch.randn(6, 8), torch.randn(8, 5), torch.randn(6, 5)
    product, gradient = Differentiated(torch.mm).bound(([counts], a, b), {REQUESTED_GRADIENTS: [1]})()
    assert not product.requires_grad
    assert torch.allclose(product, a @ b)
    assert torch.allclose(gradient, a.T @ counts)


def test_gradients_that_are_nothing_but_rounding_errors_are_not_asked_for() -> None:
    for steps, sound in (((0, 0), False), ((8, 0), False), ((0, 1), True), (None, True)):
        assert has_correct_digits(_with_steps(SOFTMAX, steps), 1) == sound
        assert has_correct_digits(_with_steps(MM, steps and (steps[0] and 5, steps[1])), 1)


def _with_steps(wanted: Case, steps: tuple[int, ...] | None) -> Case:
    (cotangent,) = cotangents(wanted)
    assert isinstance(cotangent, Tensor)
    counts = Sequence((Tensor(cotangent.shape, cotangent.dtype, cotangent.fill, steps),))
    return Case("test", wanted.operator, (counts, *wanted.args[1:]), wanted.kwargs)


class _Product(torch.autograd.Function):
    careless = ""

    @staticmethod
    def forward(ctx, a, b):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, counts):  # type: ignore[no-untyped-def]
        a, b = ctx.saved_tensors
        expanded = _Product.careless == "expanded" and 0 in counts.stride()
        frozen = _Product.careless == "frozen" and not all(ctx.needs_input_grad)
        counts = torch.zeros_like(counts) if expanded or frozen else counts
        return counts @ b.T, a.T @ counts


@pytest.mark.parametrize("careless", ["", "expanded", "frozen"])
def test_variants_tell_a_backward_pass_that_is_right_for_stated_cases_only(
    careless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Product, "careless", careless)
    for seed in range(8):
        found = [_judged(variant) for variant in VariantPool().draw(MM, 5, random.Random(seed))]
        assert any(isinstance(each, Mismatch) for each in found) == bool(careless)
    assert len(hidden_cases(MM, 2, random.Random(1))) == 2


def _judged(variant: Case) -> Agreement | Mismatch:
    expected = Reference(variant, CPU).expect(draw_call(variant, 1, CPU))
    outputs = Differentiated(_Product.apply).bound(expected.call.args, expected.call.kwargs)()
    return compare(expected, outputs, expected.inputs_after)
