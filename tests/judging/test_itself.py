"""Torch's own results, asked for again."""

from __future__ import annotations

import pytest
import torch

from torchstone.judging import Reference, agrees_with_itself, draw_call
from torchstone.judging.evaluation import Evaluation, Evaluator
from torchstone.schema import Case, Normal, Tensor

CPU = torch.device("cpu")
CASE = Case("test", "aten.exp.default", (Tensor((33, 65), "float32", Normal()),))


def test_who_repeats_itself_does() -> None:
    (expected,) = Reference(CASE, CPU).expect_many([draw_call(CASE, 7, CPU)])
    assert agrees_with_itself(expected, CPU, CPU)


def test_who_does_not_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = Reference(CASE, CPU).expect_many([draw_call(CASE, 7, CPU)])
    assert expected.values()
    native_on = Evaluator.native_on

    def otherwise(self: Evaluator, storages: list[torch.Tensor], count: int) -> Evaluation | None:
        return native_on(self, [storage + 0.01 for storage in storages], count)

    monkeypatch.setattr(Evaluator, "native_on", otherwise)
    assert not agrees_with_itself(expected, CPU, CPU)


def test_nobody_expects_it_of_random_numbers() -> None:
    case = Case("test", "aten.rand_like.default", CASE.args)
    (expected,) = Reference(case, CPU).expect_many([draw_call(case, 7, CPU)])
    assert agrees_with_itself(expected, CPU, CPU)
