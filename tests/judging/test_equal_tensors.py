from __future__ import annotations

from typing import Any

import pytest
import torch

from judging.cases import case, plans_for, tensor
from torchstone.judging import Mismatch, Reference, compare_many, draw_calls, plant, planted_calls
from torchstone.judging.plans.equal_tensors import Copied, NearlyCopied
from torchstone.schema import Booleans, Case, Integers

CPU = torch.device("cpu")
SHAPE = (7, 11)
FLOATS = tensor(*SHAPE)


def planted(wanted: Case, plan: str, seed: int) -> list[torch.Tensor]:
    (call,) = draw_calls(wanted, seed, 1, CPU)
    return [each.view for each in plant(call, plan).tensors]


def passes(wanted: Case, kernel: Any, judgements: int = 12) -> int:
    """How often a kernel is found right on planted calls alone."""
    found = 0
    for seed in range(judgements):
        reference = Reference(wanted, CPU)
        (usual,) = reference.expect_many(draw_calls(wanted, seed, 1, CPU))
        calls = planted_calls(usual, seed)
        outputs = [[kernel(*(each.view for each in expected.call.tensors))] for expected in calls]
        after = [[each.storage for each in expected.call.tensors] for expected in calls]
        found += not isinstance(compare_many(calls, outputs, after), Mismatch)
    return found


@pytest.mark.parametrize(
    "recipe",
    [
        FLOATS,
        tensor(*SHAPE, dtype="bfloat16"),
        tensor(*SHAPE, dtype="int32", fill=Integers(-9, 9)),
        tensor(*SHAPE, dtype="bool", fill=Booleans(0.5)),
        tensor(),
    ],
)
def test_equal_is_asked_of_tensors_that_are_and_of_such_that_nearly_are(recipe: Any) -> None:
    wanted = case("aten.equal.default", recipe, recipe)
    assert all(torch.equal(*planted(wanted, Copied.name, seed)) for seed in range(20))
    nearly = [planted(wanted, NearlyCopied.name, seed) for seed in range(40)]
    assert all(int((one != other).sum()) <= 1 for one, other in nearly)
    assert sum(torch.equal(*pair) for pair in nearly) < 20, "a change may be too small for the dtype"


def test_who_always_says_no_or_yes_is_wrong() -> None:
    wanted = case("aten.equal.default", FLOATS, FLOATS)
    assert passes(wanted, torch.equal) == 12
    assert passes(wanted, lambda *_: False) == 0
    assert passes(wanted, lambda *_: True) == 0


@pytest.mark.parametrize("equal_nan", [False, True])
def test_allclose_knows_nan_and_infinities(equal_nan: bool) -> None:
    wanted = case("aten.allclose.default", FLOATS, FLOATS, 1e-3, 1e-3, equal_nan)
    assert passes(wanted, lambda x, y: torch.allclose(x, y, 1e-3, 1e-3, equal_nan), 40) == 40
    assert passes(wanted, lambda x, y: torch.allclose(x, y, 1e-3, 1e-3, not equal_nan), 40) < 40
    assert passes(wanted, lambda *_: False) == 0
    assert passes(wanted, lambda x, y: bool(((x - y).abs() <= 1e-3 + 1e-3 * y.abs()).all()), 40) < 40


def test_distances_of_points_that_coincide() -> None:
    recipe = tensor(6, 40)
    wanted = case("aten._cdist_forward.default", recipe, recipe, 2.0, 2)
    assert Copied.name in plans_for(wanted, once=False)

    def by_squares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        squares = x.square().sum(1)[:, None] + y.square().sum(1)[None] - 2 * x @ y.T
        return squares.clamp(min=0.0).sqrt()

    assert passes(wanted, lambda x, y: (x[:, None] - y[None]).square().sum(-1).sqrt(), 30) == 30
    assert passes(wanted, by_squares, 30) < 15


def test_what_is_not_compared_is_left_alone() -> None:
    assert Copied.name not in plans_for(case("aten.add.Tensor", FLOATS, FLOATS), once=False), "pointwise"
    assert Copied.name not in plans_for(case("aten.mm.default", tensor(5, 5), tensor(5, 5)), once=False)
    assert Copied.name not in plans_for(case("aten.mse_loss_backward.default", tensor(), FLOATS, FLOATS, 1), once=False)
    assert Copied.name not in plans_for(case("aten.equal.default", FLOATS, tensor(3, 2)), once=False), "another shape"
    assert Copied.name not in plans_for(case("aten.dist.default", tensor(0), tensor(0)), once=False)
    overlapping = tensor(4, 5, strides=(0, 1))
    assert Copied.name not in plans_for(case("aten.equal.default", tensor(4, 5), overlapping), once=False)
