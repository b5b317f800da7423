"""Answers that are evaluated beforehand, together: the same as those that are asked for one after another."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging.cases import case, tensor
from torchstone.calls.reference_calls import Evaluation, Evaluator
from torchstone.judging import DrawnCall, Reference, ReferenceFailure, draw_calls, planted_calls
from torchstone.schema import Integers

CPU = torch.device("cpu")
ADD = case("aten.add.Tensor", tensor(3, 5), tensor(5))
NONZERO = case("aten.nonzero.default", tensor(6))


def flat(evaluations: list[Evaluation]) -> list[list[torch.Tensor]]:
    return [result for each in evaluations for result in each.results]


def count_natives(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    blocks: list[int] = []
    natives = evaluator._natives

    def counted(calls: list[DrawnCall]) -> list[Evaluation]:
        blocks.append(len(calls))
        return natives(calls)

    monkeypatch.setattr(evaluator, "_natives", counted)
    return blocks


@given(st.integers(1, 9), st.data())
def test_parts_of_what_was_precomputed_are_what_would_have_been_found(count: int, data: st.DataObject) -> None:
    for wanted in (ADD, NONZERO):
        calls = draw_calls(wanted, data.draw(st.integers(0, 99)), count, CPU)
        first = data.draw(st.integers(0, count))
        evaluator, plain = Evaluator(wanted, CPU), Evaluator(wanted, CPU)
        evaluator.precompute(calls)
        for part in (calls[:first], calls[first:]):
            if part:
                found, usual = evaluator.natives(part), plain.natives(part)
                pairs = list(zip(flat(found), flat(usual), strict=True))
                assert all(torch.equal(one[0], other[0]) for one, other in pairs)
                assert [each.shared for each in found] == [each.shared for each in usual]
                for each in found:
                    stacked = torch.stack([result[0] for result in each.results])
                    assert all(torch.equal(stacked, tensor) for tensor in each.tensors.values())


def test_torch_is_asked_once_and_each_answer_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(ADD, CPU)
    blocks = count_natives(evaluator, monkeypatch)
    calls = draw_calls(ADD, 1, 5, CPU)
    evaluator.precompute(calls)
    evaluator.natives(calls[:2])
    evaluator.natives(calls[2:])
    assert blocks == [5]
    evaluator.natives(calls[:2])
    assert blocks == [5, 2], "who asks again, perhaps because it may have another answer, has torch asked"


def test_calls_that_were_not_precomputed_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(ADD, CPU)
    blocks = count_natives(evaluator, monkeypatch)
    one, other = draw_calls(ADD, 1, 1, CPU), draw_calls(ADD, 1, 1, CPU)
    evaluator.precompute(one)
    evaluator.natives(other)
    assert blocks == [1, 1], "equal values are not the same call"


def test_if_torch_refuses_one_call_the_others_are_answered_all_the_same() -> None:
    wanted = case("aten.index_select.default", tensor(6), 0, tensor(3, dtype="int64", fill=Integers(0, 6)))
    reference = Reference(wanted, CPU)
    good, bad = draw_calls(wanted, 1, 2, CPU)
    bad.tensors[1].storage.fill_(99)
    reference.precompute([good, bad])
    (found,) = reference.expect_many([good])
    assert torch.equal(found.outputs[0].native, good.args[0][good.args[2]])
    with pytest.raises(ReferenceFailure):
        reference.expect_many([bad])


def test_planted_calls_of_a_case_take_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = case("aten.relu.default", tensor(7, 5))
    reference = Reference(wanted, CPU)
    usual = reference.expect(draw_calls(wanted, 1, 1, CPU)[0])
    blocks = count_natives(reference.evaluator, monkeypatch)
    assert planted_calls(usual, 5)
    assert len(blocks) == 1
