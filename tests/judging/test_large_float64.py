"""Large calls are probed with one float64 copy of their arguments at a time; what comes out is the same."""

from __future__ import annotations

import pytest
import torch

from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import Evaluator, ResultPosition
from torchstone.judging.reference import float64
from torchstone.schema import Case, Integers, Normal, Scalar, Sequence, Tensor

CPU = torch.device("cpu")
SHAPE = (300, 310)
"""Enough elements for one pair of steps, as large calls have."""
PLAIN = Tensor(SHAPE, "float32", Normal())
EXPANDED = Tensor(SHAPE, "float32", Normal(), strides=(0, 1))
EVERY_SECOND = Tensor(SHAPE, "float32", Normal(), strides=(700, 2), offset=1)
INDICES = Tensor((290,), "int64", Integers(0, 310))
CASES = {
    "pointwise": Case("tests", "aten.gelu.default", (PLAIN,)),
    "reduced": Case("tests", "aten.sum.dim_IntList", (PLAIN, Sequence((Scalar(1),)))),
    "product": Case("tests", "aten.mm.default", (PLAIN, Tensor((310, 280), "float32", Normal()))),
    "expanded": Case("tests", "aten.add.Tensor", (PLAIN, EXPANDED)),
    "16 bits": Case("tests", "aten.exp.default", (Tensor(SHAPE, "bfloat16", Normal()),)),
    "complex": Case("tests", "aten.mul.Tensor", (Tensor(SHAPE, "complex64", Normal()), PLAIN)),
    "written": Case("tests", "aten.add_.Tensor", (EVERY_SECOND, PLAIN)),
    "indices": Case(
        "tests", "aten.index_select.default", (PLAIN, Scalar(1), Tensor((290,), "int64", Integers(0, 310)))
    ),
    "view": Case("tests", "aten.t.default", (PLAIN,)),
    "gradient": Case("tests", "torchstone_grad.tanh.default", (Sequence((PLAIN,)), PLAIN)),
    "jumps": Case("tests", "aten.floor.default", (PLAIN,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_large_call_is_probed_as_any_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    evaluator, call = Evaluator(case, CPU), draw_call(case, 7, CPU)
    usual = float64.probe(evaluator, call)
    monkeypatch.setattr(float64, "LARGE_ELEMENTS", 0)
    monkeypatch.setattr(float64, "_add_slopes", None)  # the usual way is not taken
    large = float64.probe(evaluator, call)
    assert usual.keys() == large.keys() != set()
    for place, probe in usual.items():
        assert torch.equal(large[place].exact, probe.exact)
        assert torch.equal(large[place].slope, probe.slope)
        assert name == "jumps" or bool((probe.slope != 0).any())


def test_a_large_call_leaves_its_arguments_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "LARGE_ELEMENTS", 0)
    for case in CASES.values():
        call, other = draw_call(case, 7, CPU), draw_call(case, 7, CPU)
        float64.probe(Evaluator(case, CPU), call)
        for one, two in zip(call.tensors, other.tensors, strict=True):
            assert torch.equal(one.storage, two.storage)


def test_cancellation_is_allowed_for_wherever_slopes_lie() -> None:
    case = CASES["pointwise"]
    evaluator, values = Evaluator(case, CPU), draw_call(case, 7, CPU).tensors[0].storage
    found = []
    for slope in (torch.full(SHAPE, 1e-9, dtype=torch.float64), torch.full(SHAPE[::-1], 1e-9, dtype=torch.float64).t()):
        place = ResultPosition("output", 0)
        float64.allow_cancellation(evaluator, [values], {place: torch.zeros(SHAPE)}, {place: slope})
        found.append(slope)
    assert not found[1].is_contiguous()
    assert torch.equal(*found)
    assert bool((found[0] > 1e-6).float().mean() > 0.9)
