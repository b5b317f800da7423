from __future__ import annotations

import random

import pytest
import torch

from judging.cases import case, tensor
from torchstone.judging import Agreement, Mismatch, Reference, compare, draw_call, hidden_cases
from torchstone.judging.variants.expanded_memory import expanded, respects_stride_zero
from torchstone.judging.variants.pool import VariantPool, has_expanded
from torchstone.redteam.fixture_inputs import CASES
from torchstone.schema import Case, Integers, tensors_of

CPU = torch.device("cpu")
INDICES = tensor(20, 30, dtype="int64", fill=Integers(0, 9))


def dimensions(wanted: Case, seeds: int = 60) -> set[tuple[int, int]]:
    """Which are ever expanded: argument, dimension."""
    variants = [expanded(wanted, random.Random(seed)) for seed in range(seeds)]
    return {
        (position, dimension)
        for variant in variants
        if variant is not None
        for position, recipe in enumerate(tensors_of(variant))
        for dimension, step in enumerate(recipe.strides or ())
        if step == 0
    }


@pytest.mark.parametrize(
    ("wanted", "apart"),
    [
        (case("aten.mm.default", tensor(6, 8), tensor(8, 5)), {(0, 0), (1, 1)}),
        (case("aten.mm.default", tensor(9, 9), tensor(9, 9)), {(0, 0), (1, 1)}),
        (case("aten.mm.default", tensor(2, 2), tensor(2, 2)), {(0, 0), (1, 1)}),
        (case("aten.bmm.default", tensor(3, 6, 8), tensor(3, 8, 5)), {(0, 0), (0, 1), (1, 0), (1, 2)}),
        (case("aten._softmax.default", tensor(6, 8), -1, False), {(0, 0)}),
        (case("aten.cumsum.default", tensor(6, 8), 1), {(0, 0)}),
        (case("aten.flip.default", tensor(6, 8), [1]), {(0, 0)}),
        (case("aten.var.correction", tensor(6, 6), [1]), {(0, 0)}),
        (case("aten.embedding.default", tensor(9, 8), INDICES), {(0, 1), (1, 0), (1, 1)}),
        (case("aten.linalg_inv_ex.default", tensor(3, 6, 6)), {(0, 0)}),
        (
            case("aten.native_layer_norm.default", tensor(6, 8), [8], tensor(8), tensor(8), 1e-5),
            {(0, 0), (1, 0), (2, 0)},
        ),
        (case("aten.addmm_.default", tensor(6, 5), tensor(6, 8), tensor(8, 5)), {(1, 0), (2, 1)}),
    ],
    ids=lambda value: value.operator if isinstance(value, Case) else "",
)
def test_what_is_expanded_is_treated_slice_by_slice(wanted: Case, apart: set[tuple[int, int]]) -> None:
    assert dimensions(wanted) == apart


@pytest.mark.parametrize(
    "wanted",
    [
        case("aten.relu.default", tensor(6, 8)),  # comes with its other layouts
        case("aten.native_dropout.default", tensor(6, 8), 0.5, True),
        case("aten.transpose.int", tensor(6, 8), 0, 1),
        case("aten.sum.default", tensor(6, 8)),
        case("aten.sort.default", tensor(8)),
    ],
    ids=lambda value: value.operator,
)
def test_others_are_left_alone(wanted: Case) -> None:
    assert dimensions(wanted) == set()


def test_what_small_sizes_leave_open_does_not_count_for_large_ones() -> None:
    assert (0, 0) in dimensions(case("aten.amax.default", tensor(2, 2), [1], True))
    assert dimensions(case("aten.amax.default", tensor(40, 40), [1], True)) == {(0, 0)}


def test_other_dimensions_keep_their_order_and_their_step() -> None:
    wanted = case("aten._softmax.default", tensor(4, 6, 8, strides=(2, 64, 8)), 2, False)
    steps = {tensors_of(expanded(wanted, random.Random(seed)) or wanted)[0].strides for seed in range(30)}
    assert steps == {(0, 64, 8), (2, 0, 8), (0, 0, 8)}


def returns_zeros(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = torch.mm(a, b)
    return torch.zeros_like(result) if 0 in (*a.stride(), *b.stride()) else result


def test_every_job_meets_an_expanded_argument() -> None:
    wanted = case("aten.mm.default", tensor(24, 40), tensor(40, 12))
    for seed in range(10):
        found = [_judged(variant, seed) for variant in VariantPool().draw(wanted, 5, random.Random(seed))]
        assert any(isinstance(each, Mismatch) for each in found)
        few = [_judged(variant, seed) for variant in hidden_cases(wanted, 2, random.Random(seed))]
        assert len(few) == 2


def _judged(variant: Case, seed: int) -> Agreement | Mismatch:
    expected = Reference(variant, CPU).expect(draw_call(variant, seed, CPU))
    a, b = (drawn.view for drawn in expected.call.tensors)
    return compare(expected, [returns_zeros(a, b)], expected.inputs_after)


def test_what_torch_reads_beside_its_memory_is_no_variant() -> None:
    scales = tensor(5), tensor(5, strides=(0,))
    assert not respects_stride_zero(
        case("aten.native_group_norm.default", tensor(5, 5, 5), *scales, 5, 5, 5, 1, 0.5), 1
    )
    assert respects_stride_zero(case("aten.native_layer_norm.default", tensor(7, 5), [5], *scales, 0.5), 1)


@pytest.mark.parametrize("name", ["softmax_varied", "mm_gradient_varied"])
def test_one_variant_of_every_job_has_something_expanded(name: str) -> None:
    """A kernel that reads it as if it had a step would agree otherwise, now and then."""
    for seed in range(40):
        variants = hidden_cases(CASES[name], 6, random.Random(seed))
        telling = [each for each in variants if not any(0 in recipe.shape for recipe in tensors_of(each))]
        assert any(map(has_expanded, telling))
