"""What a recorder writes down of calls as they happen."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from torchstone.schema import Complex, DType, JudgedDevice, MemoryFormat, NonFinite, Scalar, Sequence, Tensor
from torchstone.suites.recorder import RecordedCall, Recorder, ValueProperties, properties_of


def calls_of(recorder: Recorder, operator: str) -> list[RecordedCall]:
    return [call for call in recorder.calls.values() if call.operator == operator]


def only(recorder: Recorder, operator: str) -> RecordedCall:
    (call,) = calls_of(recorder, operator)
    return call


def test_calls_alike_are_one_with_a_count_and_joined_properties() -> None:
    with Recorder() as recorder:
        torch.relu(torch.tensor([1.0, 2.0]))
        torch.relu(torch.tensor([-3.0, 0.5]))
        torch.relu(torch.ones(3))
    two, three = sorted(calls_of(recorder, "aten.relu.default"), key=lambda call: -call.count)
    assert (two.count, three.count) == (2, 1)
    assert two.args == (Tensor((2,), "float32", two.args[0].fill),)  # type: ignore[union-attr]
    assert (two.properties[0].least, two.properties[0].greatest) == (-3.0, 2.0)


def test_a_model_comes_down_to_overloads_forward_and_backward() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU())
    with Recorder() as recorder:
        model(torch.randn(2, 4)).sum().backward()
    seen = {call.operator for call in recorder.calls.values()}
    assert {"aten.addmm.default", "aten.gelu.default", "aten.gelu_backward.default", "aten.mm.default"} <= seen


def test_values_are_looked_at_before_the_call_writes_to_them() -> None:
    tensor = torch.tensor([1.0, 2.0])
    with Recorder() as recorder:
        tensor.mul_(100)
    assert only(recorder, "aten.mul_.Tensor").properties[0].greatest == 2.0
    assert tensor.tolist() == [100.0, 200.0]


def test_memory_is_kept_as_it_lies() -> None:
    base = torch.arange(24.0).view(4, 6)
    with Recorder() as recorder:
        base.t()[1:].exp()
        base[:, :1].expand(4, 3).exp()
    first, second = calls_of(recorder, "aten.exp.default")
    assert first.args[0] == Tensor((5, 4), "float32", first.args[0].fill, strides=(1, 6), offset=1)  # type: ignore[union-attr]
    assert second.args[0].strides == (6, 0)  # type: ignore[union-attr]


def test_a_row_far_into_its_memory_keeps_its_alignment_only() -> None:
    with Recorder() as recorder:
        torch.zeros(100_003)[100_001:].exp()
    assert only(recorder, "aten.exp.default").args[0].offset == 100_001 % 16  # type: ignore[union-attr]


def test_arguments_of_every_kind() -> None:
    image = torch.zeros(1, 2, 3, 4)
    with Recorder() as recorder:
        image.clone(memory_format=torch.channels_last)
        torch.full((2,), math.inf, dtype=torch.float64, device="cpu")
        torch.cat([torch.ones(1), torch.ones(2)])
        torch.full((2,), 1 + 2j)
        torch.clamp(torch.ones(2), None, 3)
    assert only(recorder, "aten.clone.default").kwargs == {"memory_format": MemoryFormat("channels_last")}
    infinite, complex_ = calls_of(recorder, "aten.full.default")
    assert infinite.args == (Sequence((Scalar(2),)), NonFinite("inf"))
    assert infinite.kwargs["dtype"] == DType("float64")
    assert infinite.kwargs["device"] == JudgedDevice()
    assert complex_.args[1] == Complex(1.0, 2.0)
    (parts,) = only(recorder, "aten.cat.default").args
    assert [part.shape for part in parts.items] == [(1,), (2,)]  # type: ignore[union-attr]
    assert only(recorder, "aten.clamp.default").args[1:] == (Scalar(None), Scalar(3))


def test_what_no_recipe_can_say_is_counted_with_the_reason() -> None:
    sparse = torch.eye(3).to_sparse()
    with Recorder() as recorder:
        sparse * 2
        torch.rand(2, generator=torch.Generator())
    reasons = dict(list(recorder.unrecorded))
    assert reasons["aten.mul.Tensor"] == "a tensor of layout sparse_coo"
    assert reasons["aten.rand.generator"] == "an argument of type Generator"


def test_the_wanted_operators_alone() -> None:
    with Recorder(lambda operator: operator.startswith("aten.relu.")) as recorder:
        torch.relu(torch.ones(2)).exp()
    assert [call.operator for call in recorder.calls.values()] == ["aten.relu.default"]


def test_tensors_without_data_have_no_properties() -> None:
    with FakeTensorMode(), Recorder() as recorder:
        torch.relu(torch.ones(2))
    assert only(recorder, "aten.relu.default").properties == (ValueProperties(),)


@pytest.mark.parametrize(
    ("values", "least", "greatest", "increasing"),
    [
        (torch.tensor([3, 1, 2]), 1, 3, False),
        (torch.tensor([1, 2, 5]), 1, 5, True),
        (torch.tensor([1, 1]), 1, 1, False),
        (torch.tensor([True, False]), 0, 1, True),
        (torch.tensor([math.nan, 2.0, -math.inf]), 2, 2, True),
    ],
)
def test_ranges_and_order(values: torch.Tensor, least: float, greatest: float, increasing: bool) -> None:
    properties = properties_of(values)
    assert (properties.seen, properties.least, properties.greatest, properties.increasing) == (
        True,
        least,
        greatest,
        increasing,
    )


def test_a_positive_definite_matrix_is_known_as_one() -> None:
    factor = torch.randn(5, 5)
    assert properties_of(factor @ factor.T + torch.eye(5)).definite
    assert not properties_of(factor).definite
    assert not properties_of(-torch.eye(5)).definite


FACTS = st.builds(
    ValueProperties,
    seen=st.booleans(),
    least=st.floats(-5, 0),
    greatest=st.floats(0, 5),
    increasing=st.booleans(),
    definite=st.booleans(),
)


@given(FACTS, FACTS, FACTS)
def test_the_order_of_calls_does_not_matter(a: ValueProperties, b: ValueProperties, c: ValueProperties) -> None:
    assert a.joined(b.joined(c)) == a.joined(b).joined(c)
    assert a.joined(b) == b.joined(a) or not (a.seen or b.seen)
