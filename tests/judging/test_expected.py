from __future__ import annotations

import math

import pytest
import torch

from judging.cases import case, tensor
from torchstone import schema
from torchstone.calls.reference_calls import Evaluator
from torchstone.judging import (
    Agreement,
    ExpectedValues,
    Mismatch,
    Reference,
    ReferenceFailure,
    ResultPosition,
    compare,
    draw_call,
    draw_calls,
)
from torchstone.judging.reference.float64 import Float64Probe, probe
from torchstone.schema import Case, DType, Integers, Uniform

CPU = torch.device("cpu")
FIRST = ResultPosition("output", 0)


def values_of(wanted: Case, seed: int = 0) -> dict[ResultPosition, ExpectedValues]:
    return Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU)).values()


def probed(wanted: Case) -> Float64Probe:
    return probe(Evaluator(wanted, CPU), draw_call(wanted, 0, CPU))[FIRST]


def test_the_exact_result_is_computed_in_float64_on_the_rounded_inputs(device: torch.device) -> None:
    wanted = case("aten.mm.default", tensor(4, 9, dtype="bfloat16"), tensor(9, 3, dtype="bfloat16"))
    call = draw_call(wanted, 0, device)
    values = Reference(wanted, device).expect(call).values()[FIRST]
    left, right = (t.view.double() for t in call.tensors)
    assert values.exact is not None
    assert torch.equal(values.exact, left @ right)
    assert values.native.dtype == torch.bfloat16


def test_outputs_tell_dtype_shape_strides_and_nothing_of_arguments() -> None:
    wanted = case("aten.transpose.int", tensor(2, 5), 0, 1)
    (output,) = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)).outputs
    assert (output.dtype, output.shape, output.strides) == (torch.float32, (5, 2), (1, 5))
    assert output.is_argument is None


def test_an_operator_in_place_leaves_the_drawn_values_alone() -> None:
    wanted = case("aten.add_.Tensor", tensor(2, 3, strides=(4, 1), offset=1), tensor(3))
    call = draw_call(wanted, 0, CPU)
    before = [t.storage.clone() for t in call.tensors]
    expected = Reference(wanted, CPU).expect(call)
    values = expected.values()
    assert all(torch.equal(a, t.storage) for a, t in zip(before, call.tensors, strict=True))
    assert expected.outputs[0].is_argument == 0
    written = values[ResultPosition("argument", 0)]
    assert written.bound is not None
    assert written.bound.count_nonzero() == 6, "nothing outside the view may differ"
    assert torch.equal(written.native[[0, 4]], before[0][[0, 4]])
    assert torch.equal(expected.inputs_after[0], written.native)
    assert torch.equal(expected.inputs_after[1], before[1])


def test_an_out_argument_is_written_and_returned() -> None:
    wanted = case("aten.add.out", tensor(4), tensor(4), out=tensor(4))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    assert expected.outputs[0].is_argument == 2
    assert list(expected.values()) == [FIRST, ResultPosition("argument", 2)]


def test_an_operator_without_returns_has_no_outputs() -> None:
    tensors = schema.Sequence((tensor(3), tensor(2)))
    wanted = case("aten._foreach_add_.Scalar", tensors, 1.5)
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    assert expected.outputs == ()
    assert list(expected.values()) == [ResultPosition("argument", 0), ResultPosition("argument", 1)]


def test_several_outputs_and_exact_integers() -> None:
    values = values_of(case("aten.max.dim", tensor(4, 6), 1))
    assert values[FIRST].bound is not None
    assert (values[ResultPosition("output", 1)].bound, values[ResultPosition("output", 1)].exact) == (None, None)


def test_a_dtype_argument_is_widened_with_the_inputs() -> None:
    wanted = case("aten.sum.dim_IntList", tensor(3, 50, dtype="float16"), [1], False, dtype=DType("bfloat16"))
    values = values_of(wanted)[FIRST]
    assert values.native.dtype == torch.bfloat16
    assert values.exact is not None
    assert values.exact.dtype == torch.float64
    integers = case("aten.sum.dim_IntList", tensor(3, 5, dtype="int32", fill=Integers(0, 9)), [1], dtype=DType("int64"))
    assert values_of(integers)[FIRST].bound is None


def test_floats_made_from_integers_have_an_exact_result_and_the_default_dtype_survives() -> None:
    values = values_of(case("aten.sqrt.default", tensor(20, dtype="int64", fill=Integers(1, 1000))))[FIRST]
    assert values.exact is not None
    assert values.native.dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32


def test_factories_have_values_without_inputs() -> None:
    wanted = case("aten.arange.start_step", 0.0, 1.0, 0.1, dtype=DType("float32"), device=schema.JudgedDevice())
    reference = Reference(wanted, CPU)
    expected = reference.expect_many(draw_calls(wanted, 0, 3, CPU))
    assert len(expected) == 3
    assert expected[2].outputs[0].shape == (10,)
    assert expected[2].values()[FIRST].exact is not None


def test_shapes_that_depend_on_values_are_expected_call_by_call() -> None:
    wanted = case("aten.nonzero.default", tensor(12, dtype="int32", fill=Integers(0, 2)))
    calls = draw_calls(wanted, 0, 8, CPU)
    shapes = [e.outputs[0].shape for e in Reference(wanted, CPU).expect_many(calls)]
    assert shapes == [(int(call.tensors[0].view.count_nonzero()), 1) for call in calls]
    assert len(set(shapes)) > 1


def test_plain_results_are_kept_as_they_are() -> None:
    wanted = case("aten.equal.default", tensor(3), tensor(3))
    (output,) = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)).outputs
    assert (output.native, output.dtype) == (False, None)


def test_what_torch_cannot_do_is_a_failure_of_the_reference() -> None:
    wanted = case("aten.mm.default", tensor(2, 3), tensor(4, 5))
    with pytest.raises(ReferenceFailure, match=r"aten\.mm\.default in torch: .*cannot be multiplied"):
        Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))


def test_outputs_are_fresh_where_the_schema_and_torch_say_so() -> None:
    for operator, args, fresh in (
        ("aten.relu.default", [tensor(3)], [True]),
        ("aten.transpose.int", [tensor(2, 5), 0, 1], [False]),
        ("aten.max.dim", [tensor(2, 5), 1], [True, True]),
        ("aten.add_.Tensor", [tensor(3), tensor(3)], [False]),
        ("aten.dropout.default", [tensor(3), 0.5, False], [False]),
        ("aten.split.Tensor", [tensor(4), 2], [False, False]),
    ):
        wanted = case(operator, *args)
        expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
        assert [output.fresh for output in expected.outputs] == fresh, operator


def test_without_a_float64_result_the_bound_is_around_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, closely: bool) -> None:
        raise NotImplementedError("not implemented for 'Double'\nC++ frames")

    monkeypatch.setattr("torchstone.judging.reference.case_reference.probe", fails)
    wanted = case("aten.exp.default", tensor(40))
    reference = Reference(wanted, CPU)
    expected = reference.expect(draw_call(wanted, 0, CPU))
    values = expected.values()[FIRST]
    assert reference.float64_failure == "not implemented for 'Double'"
    assert values.exact is None
    assert values.bound is not None
    assert torch.equal(values.centre, values.native.double())
    right = expected.outputs[0].native
    assert isinstance(compare(expected, [right * (1 + 2e-7)], expected.inputs_after), Agreement)
    assert isinstance(compare(expected, [right * (1 + 2e-5)], expected.inputs_after), Mismatch)
    assert isinstance(compare(expected, [torch.zeros_like(right)], expected.inputs_after), Mismatch)


def test_the_slope_of_a_pointwise_operator_is_x_times_its_derivative_or_what_may_cancel() -> None:
    wanted = case("aten.exp.default", tensor(100))
    found = probed(wanted)
    x = draw_call(wanted, 0, CPU).tensors[0].view.double()
    assert torch.allclose(found.slope, (x * x.exp()).abs().maximum(x.abs().clamp(max=4) / 8), rtol=1e-6)


def test_a_small_result_of_large_numbers_may_carry_their_rounding() -> None:
    """gelu far to the left is the difference of numbers near x/2: float32 kernels differ by a rounding of those."""
    wanted = case("aten.gelu.default", tensor(4096, fill=Uniform(-4.0, -2.0)))
    for seed in range(20):
        call = draw_call(wanted, seed, CPU)
        expected = Reference(wanted, CPU).expect(call)
        x = call.tensors[0].view
        by_hand = 0.5 * x * (1 + torch.special.erf(x * 0.7071067811865476))
        assert isinstance(compare(expected, [by_hand], expected.inputs_after), Agreement)
        assert isinstance(compare(expected, [torch.zeros_like(by_hand)], expected.inputs_after), Mismatch)


def test_the_slope_of_a_sum_is_the_norm_of_its_terms() -> None:
    wanted = case("aten.sum.dim_IntList", tensor(200, 300), [1])
    found = probed(wanted)
    norm = draw_call(wanted, 0, CPU).tensors[0].view.double().norm(dim=1)
    assert float((found.slope / norm).square().mean()) == pytest.approx(1.0, abs=0.2)


def test_elements_read_twice_through_an_expanded_view_move_independently() -> None:
    wanted = case("aten.var.correction", tensor(50, 8, strides=(1, 0), fill=Uniform(1, 2)), [1])
    values = values_of(wanted)[FIRST]
    assert values.exact is not None
    assert values.exact.abs().max() < 1e-30
    nearly = case("aten.sub.Tensor", tensor(4, 8, strides=(0, 1)), tensor(4, 8))
    assert (probed(nearly).slope.std(dim=0) > 0).any()


def test_a_jump_is_no_slope() -> None:
    found = probed(case("aten.floor.default", tensor(64, fill=Integers(-9, 9))))
    assert found.slope.count_nonzero() == 0


def test_a_saturated_result_has_no_slope() -> None:
    assert probed(case("aten.relu.default", tensor(64, fill=Uniform(-2, -1)))).slope.count_nonzero() == 0


def test_copies_have_a_bound_of_zero_and_roundings_do_not() -> None:
    for moved in ("aten.clone.default", "aten.relu.default", "aten.neg.default"):
        bound = values_of(case(moved, tensor(40)))[FIRST].bound
        assert bound is not None
        assert bound.count_nonzero() == 0, moved
    for rounded in ("aten.exp.default", "aten.reciprocal.default", "aten.sqrt.default"):
        bound = values_of(case(rounded, tensor(40, fill=Uniform(1, 3))))[FIRST].bound
        assert bound is not None
        assert bound.all(), rounded


def test_no_bound_is_wide_enough_for_zeros() -> None:
    for dtype in ("float32", "bfloat16", "float16"):
        values = values_of(case("aten.mm.default", tensor(20, 200, dtype=dtype), tensor(200, 20, dtype=dtype)))[FIRST]
        assert values.bound is not None
        assert values.exact is not None
        assert float((values.exact.abs() <= values.bound).double().mean()) < 0.05


def test_one_odd_element_of_torchs_widens_no_other_bound() -> None:
    wanted = case("aten.exp.default", tensor(200))
    reference = Reference(wanted, CPU)
    expected = reference.expect(draw_call(wanted, 0, CPU))
    before = expected.values()[FIRST].bound
    expected.batch.evaluation.tensors[FIRST][0, 7] += 1.0
    after = expected.values()[FIRST].bound
    assert before is not None
    assert after is not None
    changed = (after > 2.0 * before).nonzero()
    assert changed.tolist() == [[7]]


def test_where_torch_is_worse_throughout_candidates_may_be_too() -> None:
    wanted = case("aten.mm.default", tensor(16, 64), tensor(64, 16))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    before = expected.values()[FIRST].bound
    left, right = (t.view.bfloat16().float() for t in expected.call.tensors)
    expected.batch.evaluation.tensors[FIRST][0] = left @ right
    after = expected.values()[FIRST].bound
    assert before is not None
    assert after is not None
    assert float((after / before).median()) > 50.0


def test_half_precision_subnormals_get_room_for_their_rounding() -> None:
    values = values_of(case("aten.mul.Scalar", tensor(50, dtype="float16"), 1e-6))[FIRST]
    assert values.bound is not None
    assert float(values.bound.min()) >= 2.0**-25
    assert math.isfinite(float(values.bound.max()))
