from __future__ import annotations

import math
import random
from typing import Any

import pytest

from judging.cases import case, tensor
from torchstone.judging.variants.pool import VariantPool
from torchstone.judging.variants.scalars import rescalings
from torchstone.schema import Argument, Booleans, Case, Integers, NonFinite, Scalar, tensors_of

X = tensor(24, 48)
MASK = tensor(24, 48, dtype="bool", fill=Booleans())


def value_of(argument: Argument) -> Any:
    return float(argument.value) if isinstance(argument, NonFinite) else getattr(argument, "value", None)


def numbers_of(wanted: Case) -> tuple[float, ...]:
    values = [value_of(argument) for argument in (*wanted.args, *wanted.kwargs.values())]
    return tuple(value for value in values if isinstance(value, float))


def drawn(wanted: Case, *, boldly: bool, seeds: int = 40) -> set[tuple[float, ...]]:
    """The numbers of the first choice."""
    options = (rescalings(wanted, random.Random(seed), boldly=boldly) for seed in range(seeds))
    return {numbers_of(found[0]) for found in options if found}


def met(wanted: Case, seed: int) -> set[tuple[float, ...]]:
    """The numbers that one job meets where there are values."""
    variants = VariantPool().draw(wanted, 5, random.Random(seed))
    sizes = [[math.prod(recipe.shape) for recipe in tensors_of(variant)] for variant in variants]
    telling = [v for v, found in zip(variants, sizes, strict=True) if min(found) > 0 and max(found) > 8]
    return {numbers_of(variant) for variant in telling}


@pytest.mark.parametrize(
    "wanted",
    [
        case("aten.clamp.default", X, -2.5, 2.5),
        case("aten.hardtanh.default", X, -1.0, 1.0),
        case("aten.addmm.default", tensor(29), tensor(13, 41), tensor(41, 29), beta=1.0, alpha=1.0),
    ],
)
def test_numbers_part_in_every_job(wanted: Case) -> None:
    for seed in range(20):
        assert any(abs(one) != abs(other) for one, other in met(wanted, seed))


@pytest.mark.parametrize("limits", [(0.25, 0.5), (0.5, 0.5), (0.0, 6.0), (-1.0, 1.0), (0.0, 0.0), (1, 2.5)])
def test_limits_keep_their_order(limits: tuple[float, float]) -> None:
    for boldly in (True, False):
        for seed in range(60):
            for found in rescalings(case("aten.clamp.default", X, *limits), random.Random(seed), boldly=boldly)[:2]:
                low, high = (value_of(argument) for argument in found.args[1:])
                assert low < high or (low == high and limits[0] == limits[1])


@pytest.mark.parametrize(
    "wanted",
    [
        case("aten.masked_fill.Scalar", X, MASK, 0.0),
        case("aten.masked_fill.Scalar", X, MASK, NonFinite("-inf")),
        case("aten.constant_pad_nd.default", tensor(4, 24, 48), [1, 2], 0.0),
        case("aten.threshold.default", X, 0.0, 0.0),
        case("aten.leaky_relu.default", X),
        case("aten.huber_loss.default", X, X),
        case("aten.normal_.default", X, 0.0, 0.02),
        case("aten.native_dropout.default", X, 0.5, True),
        case("aten.bernoulli.p", X, 0.3),
    ],
)
def test_every_job_meets_other_numbers_than_zero_infinity_the_default_and_the_stated_chance(wanted: Case) -> None:
    for seed in range(20):
        found = met(wanted, seed)
        assert numbers_of(wanted) in found, "and the stated ones"
        assert any(
            all(new != old for new, old in zip(numbers, numbers_of(wanted) or (math.nan,), strict=False)) and numbers
            for numbers in found
        )


def test_what_stays() -> None:
    assert drawn(case("aten.native_dropout.default", X, 0.0, True), boldly=True) == set()
    assert drawn(case("aten.bernoulli.p", X, 1.0), boldly=True) == set()
    whole = tensor(8, 8, dtype="int64")
    assert drawn(case("aten.constant_pad_nd.default", whole, [1, 2], 0.0), boldly=True) == set()
    logits, target = tensor(8, 4), tensor(8, dtype="int64")
    assert drawn(case("aten.cross_entropy_loss.default", logits, target), boldly=True) == set()
    attention = case("aten.scaled_dot_product_attention.default", *[tensor(1, 2, 8, 4)] * 3)
    assert drawn(attention, boldly=True) == set()


def test_an_omitted_number_is_stated_where_it_belongs() -> None:
    (found, *_) = rescalings(case("aten.huber_loss.default", X, X), random.Random(1), boldly=True)
    assert found.args[2] == Scalar(1)
    assert found.args[3] != Scalar(1.0)
    (found, *_) = rescalings(case("aten.layer_norm.default", X, [48]), random.Random(1), boldly=True)
    assert found.args[2:4] == (Scalar(None), Scalar(None))
    assert isinstance(value_of(found.args[4]), float)


def test_infinities_become_finite_numbers_of_the_same_sign() -> None:
    found = drawn(case("aten.masked_fill.Scalar", X, MASK, NonFinite("-inf")), boldly=True)
    assert found
    assert all(math.isfinite(number) and number < 0 for (number,) in found)


def test_chances_are_others_whose_rest_has_an_exact_inverse() -> None:
    for stated in (0.1, 0.5, 0.75):
        for (other,) in drawn(case("aten.native_dropout.default", X, stated, True), boldly=False):
            assert abs(other - stated) >= 0.1
            assert math.frexp(1.0 - other)[0] == 0.5


def test_whole_numbers_in_the_place_of_values_change_and_orders_do_not() -> None:
    whole = case("aten.clamp.default", X, -1, 1)
    found = {numbers_of(each) for seed in range(20) for each in rescalings(whole, random.Random(seed), boldly=False)}
    assert len(found) > 4
    assert all(low < 0 < high for low, high in found)
    for unchanged in (
        case("aten.pow.Tensor_Scalar", X, 2),
        case("aten.norm.ScalarOpt_dim", X, 2, [1]),
        case("aten.clamp.default", tensor(24, dtype="int64", fill=Integers(-9, 9)), -1, 1),
    ):
        assert not [each for seed in range(9) for each in rescalings(unchanged, random.Random(seed), boldly=True)]
