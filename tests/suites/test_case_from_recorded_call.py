"""Which values recorded calls may be given again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.suites import case_from_recorded_call
from torchstone.suites.case_from_recorded_call import Unfit, domains_of, fit
from torchstone.suites.enlarging import ELEMENTS, enlarged
from torchstone.suites.recorder import Recorder

CPU = torch.device("cpu")


def fitted(operator: str, *runs: Callable[[], Any]) -> schema.Case:
    """The case of the last call of an operator, with what all runs together say of its domain."""
    with Recorder() as recorder:
        for run in runs:
            run()
    calls = [call for call in recorder.calls.values() if call.operator == operator]
    return fit(calls[-1], "tests", domains_of(recorder.calls.values()), CPU)


def fills(case: schema.Case) -> list[schema.Fill]:
    return [tensor.fill for tensor in schema.tensors_of(case)]


def test_what_takes_anything_is_given_anything() -> None:
    case = fitted("aten.add.Tensor", lambda: torch.rand(3, 4) + torch.rand(4))
    assert fills(case) == [schema.Normal(), schema.Normal()]
    assert case.jitter
    assert case.indistinct == ""


def test_a_logarithm_stays_in_the_domain_that_was_seen() -> None:
    case = fitted("aten.log.default", lambda: torch.log(torch.tensor([0.5, 9.0])), lambda: torch.rand(3).add(2).log())
    assert fills(case) == [schema.Uniform(0.5, 9.0)]


def test_indices_reach_over_the_dimension_that_they_fit_in() -> None:
    case = fitted("aten.index_select.default", lambda: torch.rand(7, 5).index_select(0, torch.tensor([5, 1])))
    assert fills(case)[1] == schema.Integers(0, 7)


def test_an_index_that_fits_no_size_keeps_its_range() -> None:
    case = fitted("aten.bitwise_and.Tensor", lambda: torch.tensor([900, 3]) & torch.tensor([-4, 1000]))
    assert fills(case) == [schema.Integers(3, 901), schema.Integers(-4, 1001)]


def test_no_index_comes_twice_where_the_last_one_wins() -> None:
    def run() -> None:
        torch.zeros(6, 2).index_copy_(0, torch.tensor([4, 1]), torch.ones(2, 2))

    assert fills(fitted("aten.index_copy_.default", run))[1] == schema.SortedIntegers(0, 6)


@pytest.mark.parametrize("accumulate", [True, False])
def test_an_index_comes_twice_where_what_meets_is_added(accumulate: bool) -> None:
    def run() -> None:
        torch.zeros(6, 2).index_put_((torch.tensor([4, 1]),), torch.ones(2, 2), accumulate=accumulate)

    expected = schema.Integers(0, 6) if accumulate else schema.SortedIntegers(0, 6)
    assert fills(fitted("aten.index_put_.default", run))[1] == expected


def test_positive_definite_matrices_stay_so() -> None:
    case = fitted("aten.linalg_cholesky_ex.default", lambda: torch.linalg.cholesky(torch.eye(4) * 3))
    assert fills(case) == [schema.PositiveDefinite()]


def test_lengths_stay_as_they_are_and_no_variant_is_made() -> None:
    def run() -> None:
        torch.segment_reduce(torch.rand(6), "sum", lengths=torch.tensor([1, 2, 3]))

    case = fitted("aten.segment_reduce.default", run)
    assert fills(case) == [schema.Normal(), schema.Given((1, 2, 3))]
    assert not case.jitter


@pytest.mark.parametrize(
    ("operator", "run", "excuse"),
    [
        ("aten.relu.default", lambda: torch.rand(0, 3).relu(), case_from_recorded_call.NO_ELEMENT),
        ("aten.sum.default", lambda: torch.rand(4, 3).sum(), case_from_recorded_call.ONE_ELEMENT),
        ("aten.ones_like.default", lambda: torch.ones_like(torch.rand(4)), case_from_recorded_call.CONSTANT),
        ("aten.eye.default", lambda: torch.eye(4), case_from_recorded_call.CONSTANT),
    ],
)
def test_cases_that_tell_little_say_why(operator: str, run: Callable[[], Any], excuse: str) -> None:
    assert fitted(operator, run).indistinct == excuse


def test_a_call_that_torch_never_takes_again_has_a_reason() -> None:
    ones = torch.ones(2)
    with Recorder() as recorder:
        torch.relu(ones)
    (call,) = recorder.calls.values()
    wrong = case_from_recorded_call.RecordedCall(
        "aten.mm.default", (*call.args, *call.args), {}, (*call.properties, *call.properties)
    )
    with pytest.raises(Unfit, match=r"mat|2-D|matrices|dimension"):
        fit(wrong, "tests", {}, CPU)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_whatever_was_called_can_be_called_again(data: st.DataObject) -> None:
    rows, columns, picked = (data.draw(st.integers(1, 6)) for _ in range(3))
    tensor = torch.rand(rows, columns) + 0.1
    index = torch.randint(0, rows, (picked,))
    with Recorder() as recorder:
        tensor.log().softmax(-1)
        tensor[index].cumsum(0)
        torch.gather(tensor, 0, torch.randint(0, rows, (1, columns)))
        tensor.index_add(0, index, torch.rand(picked, columns))
        (tensor > 0.5).any(0)
    for call in recorder.calls.values():
        case = fit(call, "tests", domains_of(recorder.calls.values()), CPU)
        drawn = draw_call(case, data.draw(st.integers(0, 2**32)), CPU)
        operators.resolve(case.operator)(*drawn.args, **drawn.kwargs)


# ---- large variants


def test_a_large_variant_is_timed_and_as_large_as_wanted() -> None:
    large = enlarged(fitted("aten.add.Tensor", lambda: torch.rand(3, 5) + torch.rand(5)), CPU)
    assert large is not None
    assert large.timed
    assert large.indistinct == ""
    left, right = schema.tensors_of(large)
    assert left.shape[0] * left.shape[1] >= ELEMENTS["cpu"]
    assert right.shape == left.shape[1:]


def test_indices_grow_with_what_they_point_into() -> None:
    small = fitted("aten.embedding.default", lambda: torch.embedding(torch.rand(9, 4), torch.tensor([8, 0])))
    large = enlarged(small, CPU)
    assert large is not None
    table, index = schema.tensors_of(large)
    assert index.fill == schema.Integers(0, table.shape[0])


def test_views_and_constants_have_no_large_variant() -> None:
    assert enlarged(fitted("aten.view.default", lambda: torch.rand(4, 3).view(12)), CPU) is None
    assert enlarged(fitted("aten.eye.default", lambda: torch.eye(4)), CPU) is None
