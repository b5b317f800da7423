"""Indices that are drawn by weights: what they point at tells whether they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.judging import Agreement, Reference, compare, draw_calls
from torchstone.judging.stochastic.sampled_indices import range_message, selected_values, source_of
from torchstone.schema import Case, Scalar, Tensor, Uniform

CPU = torch.device("cpu")
WEIGHTS = Tensor((256, 1000), "float32", Uniform(0.1, 9.0))
CASE = Case("test", "aten.multinomial.default", (WEIGHTS, Scalar(3), Scalar(False)))
KERNELS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "as torch": (lambda w: torch.multinomial(w, 3), True),
    "by noise": (lambda w: (w / -torch.log(torch.rand_like(w))).topk(3).indices, True),
    "whatever the weights are": (lambda w: torch.rand_like(w).topk(3).indices, False),
    "by squares of the weights": (lambda w: torch.multinomial(w * w, 3), False),
    "sorted": (lambda w: torch.multinomial(w, 3).sort(-1).values, False),
    "out of range": (lambda w: torch.multinomial(w, 3) + 997, False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_who_does_not_look_at_the_weights_is_refused(name: str) -> None:
    kernel, is_right = KERNELS[name]
    reference = Reference(CASE, CPU)
    calls = draw_calls(CASE, 11, 4, CPU)
    found = [
        compare(expected, [kernel(call.args[0])], [tensor.storage for tensor in call.tensors])
        for call, expected in zip(calls, reference.expect_many(calls, with_bounds=True), strict=True)
    ]
    assert all(isinstance(each, Agreement) for each in found) == is_right, found


def test_an_argument_is_pointed_at_if_it_has_the_rows_and_room_for_the_indices() -> None:
    weights, indices = torch.rand(4, 9), torch.randint(0, 9, (2, 4, 3))
    assert source_of(indices, [torch.rand(5, 9), weights]) is weights
    assert source_of(indices + 9, [weights]) is None
    assert source_of(indices.float(), [weights]) is None
    assert torch.equal(selected_values(weights, indices)[1], weights.gather(1, indices[1]))
    assert range_message(weights, indices) is None
    assert "expected 0 to 8" in str(range_message(weights, indices - 9))
