"""Where the judge does its own arithmetic, and that nothing is lost on the way there."""

from __future__ import annotations

import pytest
import torch

from torchstone.calls.reference_calls import Evaluator
from torchstone.judging import Agreement, Reference, arithmetic_device_of, compare, draw_call
from torchstone.schema import Case, Normal, Scalar, Tensor

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
ELSEWHERE = torch.device("cpu", 0)
"""The same memory under another name: what is brought there takes the way that it takes from a GPU."""
SMALL = Tensor((5, 7), "float32", Normal())
TURNED = Tensor((5, 7), "float32", Normal(), strides=(1, 5))


@pytest.mark.parametrize(
    ("case", "arithmetic_device"),
    [
        (Case("x", "aten.relu.default", (SMALL,)), CPU),
        (Case("x", "aten.relu.default", (SMALL,), timed=True), GPU),
        (Case("x", "aten.relu.default", (Tensor((1 << 20,), "float32", Normal()),)), GPU),
        (Case("x", "aten.cudnn_grid_sampler.default", (SMALL, SMALL)), GPU),
        (Case("x", "torchstone_grad.relu.default", (SMALL,)), GPU),
    ],
)
def test_small_cases_that_are_not_timed_are_worked_on_by_the_host(case: Case, arithmetic_device: torch.device) -> None:
    assert arithmetic_device_of(case, GPU) == arithmetic_device
    assert arithmetic_device_of(case, CPU) == CPU


@pytest.mark.parametrize("tensor", [SMALL, TURNED])
@pytest.mark.parametrize("operator", ["aten.clone.default", "aten.t.default", "aten.exp_.default"])
def test_results_lie_at_the_desk_as_torch_left_them(operator: str, tensor: Tensor) -> None:
    case = Case("x", operator, (tensor,))
    calls = [draw_call(case, seed, CPU) for seed in (1, 2)]
    plain, brought = (Evaluator(case, CPU, arithmetic_device).native(calls) for arithmetic_device in (CPU, ELSEWHERE))
    assert plain is not None
    assert brought is not None
    for ours, theirs in zip(brought.results, plain.results, strict=True):
        assert [leaf.stride() for leaf in ours] == [leaf.stride() for leaf in theirs]
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert brought.shared == plain.shared
    assert all(torch.equal(brought.tensors[place], tensor) for place, tensor in plain.tensors.items())


def test_an_expanded_result_keeps_its_overlap() -> None:
    case = Case("x", "aten.unfold.default", (Tensor((9,), "float32", Normal()), Scalar(0), Scalar(4), Scalar(1)))
    evaluation = Evaluator(case, CPU, ELSEWHERE).native([draw_call(case, 1, CPU)])
    assert evaluation is not None
    assert evaluation.results[0][0].stride() == (1, 1)


def test_what_is_judged_at_the_desk_agrees() -> None:
    for operator in ("aten.exp.default", "aten.cumsum.default", "aten.bernoulli.p"):
        arguments = (
            (SMALL, Scalar(0.5)) if operator.endswith(".p") else (SMALL, Scalar(1))[: 1 + ("cumsum" in operator)]
        )
        reference = Reference(Case("x", operator, arguments), CPU, ELSEWHERE)
        call = draw_call(reference.case, 3, CPU)
        result = getattr(torch.ops.aten, operator.split(".")[1])(*call.args)
        assert isinstance(compare(reference.expect(call), [result], [t.storage for t in call.tensors]), Agreement)


def test_a_device_without_its_number_is_the_same_device() -> None:
    """``torch.device("cuda")`` is what users say, and results say ``cuda:0``."""
    case = Case("x", "aten.relu.default", (SMALL,))
    assert Evaluator(case, ELSEWHERE).native([draw_call(case, 1, CPU)]) is not None
