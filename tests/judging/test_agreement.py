from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging.cases import ADVERSARIES, KINDS, Kind, case, lower_precision, storages_of, tensor
from torchstone import schema
from torchstone.calls.reference_calls import Evaluator
from torchstone.judging import (
    Agreement,
    DrawnCall,
    Expected,
    Mismatch,
    Reference,
    ResultPosition,
    compare,
    compare_many,
    draw_call,
    draw_calls,
    plant,
    worst_of,
)
from torchstone.judging.compare import agreement
from torchstone.judging.reference.float64 import Float64Probe, probe
from torchstone.judging.variant_tag import HIDDEN
from torchstone.schema import (
    Booleans,
    Case,
    DType,
    ErrorStatistics,
    Integers,
    JudgedDevice,
    Normal,
    Scalar,
    Tensor,
    Uniform,
)

CPU = torch.device("cpu")
FIRST = ResultPosition("output", 0)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])


def expected_for(wanted: Case, seed: int = 0, device: torch.device = CPU) -> Expected:
    return Reference(wanted, device).expect(draw_call(wanted, seed, device))


def natives(expected: Expected) -> list[Any]:
    return [o.native.clone() if isinstance(o.native, torch.Tensor) else o.native for o in expected.outputs]


def judged(expected: Expected, *outputs: Any) -> Agreement | Mismatch:
    return compare(expected, outputs, expected.inputs_after)


def refused(expected: Expected, *outputs: Any) -> Mismatch:
    found = judged(expected, *outputs)
    assert isinstance(found, Mismatch)
    return found


# Honest kernels agree, adversaries do not.


@kinds
@dtypes
def test_honest_kernels_agree_in_full(kind: Kind, dtype: str, device: torch.device) -> None:
    for size in kind.sizes:
        reference = Reference(kind.case(size, dtype), device)
        for seed in range(3):
            call = draw_call(reference.case, seed, device)
            expected = reference.expect(call)
            for name, kernel in {**kind.honest, "float64 inside": kind.in_float64}.items():
                found = compare(expected, [kernel(*call.args)], storages_of(call))
                assert isinstance(found, Agreement), (name, size, seed, found)
                assert found.errors.worst_over_bound is not None
                assert float(found.errors.worst_over_bound) <= 1.0


@kinds
@dtypes
def test_honest_kernels_agree_over_two_hundred_calls(kind: Kind, dtype: str) -> None:
    size = kind.sizes[1]
    reference = Reference(kind.case(size, dtype), CPU)
    reference.expect(draw_call(reference.case, 0, CPU)).values()
    calls = draw_calls(reference.case, 1, 200, CPU)
    expected = reference.expect_many(calls)
    untouched = [storages_of(call) for call in calls]
    for name, kernel in {**kind.honest, "float64 inside": kind.in_float64}.items():
        found = compare_many(expected, [[kernel(*call.args)] for call in calls], untouched)
        assert isinstance(found, Agreement), (name, found)
        assert found.calls == 200


@kinds
@dtypes
@pytest.mark.parametrize("cheat", ADVERSARIES)
def test_adversaries_are_refused(kind: Kind, dtype: str, cheat: str, device: torch.device) -> None:
    if kind.name == "sum of all":
        pytest.skip("one number is its own mean, and is met by chance")
    reference = Reference(kind.case(kind.sizes[-1], dtype), device)
    for seed in range(3):
        call = draw_call(reference.case, seed, device)
        expected = reference.expect(call)
        output = ADVERSARIES[cheat](expected.outputs[0].native, call)
        assert isinstance(compare(expected, [output], storages_of(call)), Mismatch)
        (screened,) = reference.expect_many([call])
        assert isinstance(compare_many([screened], [[output]], [storages_of(call)]), Mismatch)


@kinds
@dtypes
def test_another_seeds_answer_is_refused(kind: Kind, dtype: str) -> None:
    reference = Reference(kind.case(kind.sizes[0], dtype), CPU)
    first, second = (reference.expect(draw_call(reference.case, seed, CPU)) for seed in (1, 2))
    assert isinstance(compare(first, natives(second), first.inputs_after), Mismatch)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.adds], ids=lambda kind: kind.name)
def test_lower_precision_is_told_apart_in_float32(kind: Kind) -> None:
    for size in kind.sizes[1:]:
        reference = Reference(kind.case(size, "float32"), CPU)
        for seed in range(3):
            call = draw_call(reference.case, seed, CPU)
            expected = reference.expect(call)
            for name, kernel in lower_precision(kind).items():
                found = compare(expected, [kernel(*call.args)], storages_of(call))
                assert isinstance(found, Mismatch), (name, size, seed)


@dtypes
def test_a_dropped_part_of_a_reduction_is_refused(dtype: str) -> None:
    expected = expected_for(case("aten.mm.default", tensor(32, 512, dtype=dtype), tensor(512, 32, dtype=dtype)))
    left, right = (t.view.float() for t in expected.call.tensors)
    assert refused(expected, (left[:, :-8] @ right[:-8]).to(getattr(torch, dtype))).reason == "values"


def test_a_mismatch_says_in_fields_which_elements_are_wrong_and_how() -> None:
    expected = expected_for(case("aten.relu.default", tensor(4, 5)))
    (native,) = natives(expected)
    got = native.clone()
    got.view(-1)[[7, 12]] += 1.0
    got.view(-1)[17] = torch.nan
    wrong = refused(expected, got).wrong
    assert wrong is not None
    assert (wrong.kind, wrong.position, wrong.shape, wrong.elements) == ("output", 0, (4, 5), 20)
    assert (wrong.wrong, wrong.first_wrong, wrong.last_wrong, wrong.worst_index) == (3, 7, 17, (3, 2))
    assert wrong.got == "nan"
    assert float(wrong.expected) == pytest.approx(float(native[3, 2]), rel=1e-4)
    assert wrong.inputs.keys() == {"self"}


# Metadata.


def test_the_number_and_kind_of_outputs_is_compared_first() -> None:
    expected = expected_for(case("aten.max.dim", tensor(4, 6), 1))
    values, indices = natives(expected)
    assert refused(expected, values).message == "returned 1 output, expected 2"
    plain = refused(expected, values, 3)
    assert (plain.reason, plain.message) == ("structure", "output 1: got a int, expected a tensor")
    assert plain.wrong == schema.WrongResult(position=1, text="got a int, expected a tensor")
    wrong = refused(expected, values.double(), indices)
    assert (wrong.reason, wrong.message) == ("dtype", "output 0: got float64, expected float32")
    wrong = refused(expected, values, indices.reshape(2, 2))
    assert (wrong.reason, wrong.message) == ("shape", "output 1: got shape [2, 2], expected [4]")
    assert refused(expected, values.reshape(2, 2), indices.int()).reason == "dtype"


def test_plain_values_must_be_equal_and_of_the_same_kind() -> None:
    expected = expected_for(case("aten.equal.default", tensor(3), tensor(3)))
    assert isinstance(judged(expected, False), Agreement)
    assert refused(expected, True).reason == "values"
    assert refused(expected, 0).reason == "structure"
    assert refused(expected, torch.tensor(False)).reason == "structure"


def test_an_operator_without_returns_may_return_anything() -> None:
    expected = expected_for(case("aten._foreach_add_.Scalar", schema.Sequence((tensor(3), tensor(2))), 1.5))
    assert isinstance(judged(expected, None), Agreement)
    assert isinstance(judged(expected), Agreement)
    unchanged = compare(expected, [], storages_of(expected.call))
    assert isinstance(unchanged, Mismatch)
    assert unchanged.reason == "mutation"


# Layouts, and what must or must not change.


@pytest.mark.parametrize(
    "wanted",
    [
        case("aten.exp.default", tensor(5, 7, strides=(1, 5))),
        case("aten.exp.default", tensor(5, 7, strides=(20, 2), offset=3)),
        case("aten.mul.Tensor", tensor(5, 7, strides=(0, 1)), tensor(7, strides=(3,), offset=2)),
        case("aten.sum.dim_IntList", tensor(4, 6, strides=(0, 0)), [0]),
        case("aten.exp.default", tensor(0, 4, offset=2)),
        case("aten.exp.default", tensor()),
        case("aten.cat.default", schema.Sequence((tensor(2, 3), tensor(4, 3)))),
        case("aten.split.Tensor", tensor(7, 2), 3),
        case("aten.transpose.int", tensor(3, 5), 0, 1),
        case("aten.sum.default", tensor(3, 4, dtype="complex64")),
        case("aten.mul.Tensor", tensor(30, dtype="complex128"), tensor(30, dtype="complex128")),
        case("aten.index_put_.default", tensor(9), [tensor(3, dtype="int64", fill=Integers(0, 9))], tensor(3)),
        case("aten.native_layer_norm.default", tensor(3, 8), [8], tensor(8), tensor(8), 1e-5),
        case("aten.nonzero.default", tensor(9, dtype="bool", fill=Booleans())),
    ],
    ids=lambda wanted: wanted.label,
)
def test_torchs_own_results_agree_on_every_layout(wanted: Case, device: torch.device) -> None:
    reference = Reference(wanted, device)
    for with_bounds in (True, False):
        expected = reference.expect_many(draw_calls(wanted, 5, 3, device), with_bounds=with_bounds)
        outputs, after = [natives(e) for e in expected], [e.inputs_after for e in expected]
        found = compare_many(expected, outputs, after)
        assert isinstance(found, Agreement), found


def test_a_changed_input_is_refused_even_between_the_elements_of_its_view() -> None:
    expected = expected_for(case("aten.exp.default", tensor(3, strides=(2,), offset=1)))
    after = [s.clone() for s in expected.inputs_after]
    after[0][2] = 7.0
    found = compare(expected, natives(expected), after)
    assert isinstance(found, Mismatch)
    assert found.reason == "mutation"
    assert "argument 0 must not change: 1 of 6 elements" in found.message
    assert "at 2" in found.message


def test_unchanged_means_bit_for_bit() -> None:
    for dtype in ("float32", "complex64"):
        expected = expected_for(case("aten.abs.default", tensor(4, dtype=dtype)))
        after = [s.clone() for s in expected.inputs_after]
        after[0].view(torch.int32)[-1] ^= 1
        found = compare(expected, natives(expected), after)
        assert isinstance(found, Mismatch)
        assert "1 of 4 elements of its storage did, the first at 3" in found.message


def test_an_operator_in_place_must_write_its_argument_and_only_that() -> None:
    wanted = case("aten.add_.Tensor", tensor(3, 4, strides=(6, 1), offset=1), tensor(4))
    reference = Reference(wanted, CPU)
    expected = reference.expect(draw_call(wanted, 0, CPU))
    result = natives(expected)
    unwritten = compare(expected, result, storages_of(expected.call))
    assert isinstance(unwritten, Mismatch)
    assert unwritten.reason == "mutation"
    assert "argument 0 after the call: 12 of 17 elements wrong" in unwritten.message
    for gap in (0, 5):
        after = [s.clone() for s in expected.inputs_after]
        after[0][gap] += 1e-7
        for item in (expected, *reference.expect_many([expected.call])):
            beside = compare_many([item], [result], [after])
            assert isinstance(beside, Mismatch)
            assert beside.reason == "mutation"


# Exact dtypes.


def test_integers_wrap_around_as_torchs_do_and_are_exact() -> None:
    wanted = case("aten.mul.Tensor", *(tensor(50, dtype="int32", fill=Integers(-(2**31), 2**31)) for _ in range(2)))
    expected = expected_for(wanted)
    (right,) = natives(expected)
    assert isinstance(judged(expected, right), Agreement)
    right[17] += 1
    found = refused(expected, right)
    assert found.reason == "values"
    assert (
        f"1 of 50 elements wrong; worst at [17]: got {int(right[17])}, expected {int(right[17]) - 1}" in found.message
    )
    assert found.errors.max_abs_error == 1.0


def test_booleans_are_exact() -> None:
    expected = expected_for(case("aten.logical_not.default", tensor(3, 4, dtype="bool", fill=Booleans())))
    (right,) = natives(expected)
    right[1, 2] = ~right[1, 2]
    assert "worst at [1, 2]" in refused(expected, right).message


def test_moved_values_are_exact_in_floats_too() -> None:
    reference = Reference(
        case("aten.gather.default", tensor(40), 0, tensor(40, dtype="int64", fill=Integers(0, 40))), CPU
    )
    expected = reference.expect(draw_call(reference.case, 0, CPU))
    (right,) = natives(expected)
    assert isinstance(judged(expected, right), Agreement)
    right[3] = torch.nextafter(right[3], torch.tensor(9.0))
    assert "allowed 0 (this operator only moves values)" in refused(expected, right).message
    assert isinstance(
        compare_many(reference.expect_many([expected.call]), [[right]], [expected.inputs_after]), Mismatch
    )


# Non-finite values.


def test_nan_stands_for_nan_and_infinities_keep_their_sign() -> None:
    expected = expected_for(case("aten.log.default", tensor(200, fill=Integers(-3, 4))))
    (right,) = natives(expected)
    assert right.isnan().any()
    assert right.isinf().any()
    found = judged(expected, right)
    assert isinstance(found, Agreement)
    assert found.errors.max_abs_error is not None
    for place, value in (
        ("isnan", 0.0),
        ("isnan", math.inf),
        ("isinf", math.inf),
        ("isinf", -3e38),
        ("isfinite", math.nan),
    ):
        wrong = right.clone()
        index = int(getattr(right, place)().to(torch.uint8).argmax())
        wrong[index] = value
        assert refused(expected, wrong).reason == "nonfinite"
        assert f"at [{index}]" in refused(expected, wrong).message


def test_an_overflow_of_float16_may_be_infinite_or_the_largest_number_nowhere_else() -> None:
    expected = expected_for(case("aten.mul.Scalar", tensor(400, dtype="float16", fill=Normal(0.0, 100.0)), 300.0))
    exact = expected.values()[FIRST].exact
    assert exact is not None
    (right,) = natives(expected)
    assert right.isinf().any()
    assert isinstance(judged(expected, exact.to(torch.float16)), Agreement)
    saturated = right.clamp(-65504, 65504)
    assert refused(expected, saturated).reason in ("nonfinite", "values")
    assert refused(expected, torch.where(right.isinf(), -right, right)).reason == "nonfinite"


def test_a_finite_result_is_right_where_only_torch_overflows() -> None:
    wanted = case("aten.mm.default", tensor(8, 64, dtype="float16"), tensor(64, 8, dtype="float16"))
    reference = Reference(wanted, CPU)
    expected = reference.expect(draw_call(wanted, 0, CPU))
    overflowed = expected.batch.evaluation.tensors[FIRST]
    honest = overflowed[0].clone()
    overflowed[0, 2, 3] = math.inf
    assert isinstance(judged(expected, honest), Agreement)
    assert isinstance(judged(expected, overflowed[0].clone()), Agreement)
    honest[2, 3] = -math.inf
    assert refused(expected, honest).reason == "nonfinite"


# Messages and statistics.


def test_the_message_says_where_what_and_how_far() -> None:
    expected = expected_for(case("aten.exp.default", tensor(4, 5)))
    (right,) = natives(expected)
    right[2, 3] += 0.5
    right[0, 1] += 0.001
    found = refused(expected, right)
    assert found.message.startswith("output 0: 2 of 20 elements wrong; worst at [2, 3]: got ")
    assert ", error 0.5" in found.message
    assert re.search(r", allowed [0-9.e-]+ \([0-9.,e+]+ times that\); ", found.message)
    assert f"; inputs there: self = {expected.call.args[0][2, 3].item():.9g}; torch's own result" in found.message
    assert found.errors.max_abs_error == pytest.approx(0.5, rel=1e-3)
    assert float(found.errors.worst_over_bound or 0.0) > 1e4


def test_statistics_are_against_the_exact_result() -> None:
    expected = expected_for(case("aten.exp.default", tensor(500)))
    found = judged(expected, *natives(expected))
    assert isinstance(found, Agreement)
    exact = expected.values()[FIRST].exact
    assert exact is not None
    error = (natives(expected)[0].double() - exact).abs()
    assert found.errors.max_abs_error == float(error.max())
    assert found.errors.max_rel_error == pytest.approx(float((error / (exact.abs() + 1e-10)).max()))
    assert found.errors.worst_over_bound == found.errors.native_over_bound


def test_an_error_over_a_bound_of_0_is_infinite() -> None:
    expected = expected_for(case("aten.clone.default", tensor(40)))
    found = refused(expected, natives(expected)[0] + 1.0)
    assert found.errors.worst_over_bound == "inf"
    assert found.errors.max_abs_error == pytest.approx(1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_must_be_finite_and_is_not_is_infinitely_far_off(value: float) -> None:
    expected = expected_for(case("aten.exp.default", tensor(4, 5)))
    (right,) = natives(expected)
    right[2, 3] = value
    found = refused(expected, right)
    assert found.reason == "nonfinite"
    assert found.errors.worst_over_bound == "inf"


def test_a_whole_number_that_float64_cannot_tell_apart_is_still_wrong() -> None:
    expected = expected_for(case("aten.clone.default", Tensor((8,), "int64", Integers(1 << 60, 1 << 61))))
    found = refused(expected, natives(expected)[0] ^ 1)
    assert found.errors.worst_over_bound == "inf"


def test_the_worst_of_two_is_taken_number_by_number() -> None:
    assert worst_of(ErrorStatistics(1.0, None, 2.0), ErrorStatistics(0.5, None, 3.0)) == ErrorStatistics(1.0, None, 3.0)
    one, other = ErrorStatistics(rms_over_bound=0.5, bias_over_bound=0.1), ErrorStatistics(rms_over_bound=0.25)
    assert worst_of(one, other) == one


def test_root_mean_square_and_bias_are_reported_under_their_names() -> None:
    expected = expected_for(case("aten.exp.default", tensor(500)))
    found = judged(expected, *natives(expected))
    assert 0.0 < (found.errors.rms_over_bound or 0.0) < 1.0
    assert 0.0 < (found.errors.bias_over_bound or 0.0) < 1.0
    assert found.errors.smallest_wrong_error is None


# Many calls.


def test_the_first_wrong_call_of_many_is_named() -> None:
    wanted = case("aten.exp.default", tensor(6))
    reference = Reference(wanted, CPU)
    for with_bounds in (True, False):
        expected = reference.expect_many(draw_calls(wanted, 0, 9, CPU), with_bounds=with_bounds)
        outputs, after = [natives(e) for e in expected], [e.inputs_after for e in expected]
        assert isinstance(compare_many(expected, outputs, after), Agreement)
        outputs[4][0][5] += 1.0
        outputs[7][0] = outputs[7][0].double()
        found = compare_many(expected, outputs, after)
        assert isinstance(found, Mismatch)
        assert (found.call, found.reason) == (4, "values")
        assert "[5]" in found.message


def test_calls_from_several_batches_may_be_compared_together() -> None:
    wanted = case("aten.exp.default", tensor(6))
    reference = Reference(wanted, CPU)
    expected = [e for seed in range(3) for e in reference.expect_many(draw_calls(wanted, seed, 4, CPU))]
    shuffled = [expected[i] for i in (3, 0, 1, 2, 7, 11, 5, 6)]
    outputs, after = [natives(e) for e in shuffled], [e.inputs_after for e in shuffled]
    assert compare_many(shuffled, outputs, after) == Agreement(ErrorStatistics(), 8)
    outputs[5][0][0] = 1e9
    found = compare_many(shuffled, outputs, after)
    assert isinstance(found, Mismatch)
    assert found.call == 5
    assert compare_many([], [], []) == Agreement(ErrorStatistics(), 0)


def test_screening_costs_no_float64_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = case("aten.mm.default", tensor(16, 16), tensor(16, 16))
    reference = Reference(wanted, CPU)
    reference.expect(draw_call(wanted, 0, CPU)).values()
    calls = draw_calls(wanted, 1, 300, CPU)
    expected = reference.expect_many(calls)
    monkeypatch.setattr(reference, "bounded", None)
    outputs = [[(a.view.double() @ b.view.double()).float()] for a, b in (call.tensors for call in calls)]
    assert isinstance(compare_many(expected, outputs, [storages_of(call) for call in calls]), Agreement)


@pytest.mark.parametrize("open_call", [0, 1, None])
def test_a_call_that_torch_does_not_stand_by_excuses_no_other(
    open_call: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = case("aten.exp.default", tensor(40))
    calls = [plant(call, "hundreds") for call in draw_calls(wanted, 3, 2, CPU)]
    expected = Reference(wanted, CPU).expect_many(calls)
    monkeypatch.setattr(agreement, "reference_is_consistent", lambda each: each.call.index != open_call)
    monkeypatch.setattr(agreement, "with_reference_where_inconsistent", lambda *_: None)
    outputs = [[each.outputs[0].native * 1.5] for each in expected]
    found = compare_many(expected, outputs, [storages_of(call) for call in calls])
    assert isinstance(found, Mismatch)
    assert found.call == (1 if open_call == 0 else 0)


def test_terms_that_cancel_in_a_single_element_are_seen_to() -> None:
    """An unfused kernel beside torch's fused one: three probes miss the cancelling one time in eight."""
    alpha = 2.5
    wanted = case("aten.add.Tensor", tensor(1), tensor(1), alpha=alpha)
    reference, missed = Reference(wanted, CPU), 0
    for seed in (2253, 8864):
        call = draw_call(wanted, seed, CPU)
        x, y = (each.view for each in call.tensors)
        expected = reference.expect(call)
        assert isinstance(compare(expected, [x + alpha * y], expected.inputs_after), Agreement)
        assert isinstance(compare(expected, [(x + alpha * y) * (1 + 1e-3)], expected.inputs_after), Mismatch)
        few = compare(expected, [x + alpha * y], expected.inputs_after, expected.values())
        missed += isinstance(few, Mismatch)
    assert missed == 2, "these seeds are of calls whose three probes do miss it"


@pytest.mark.parametrize("tags", [(), (HIDDEN,)])
def test_torchs_own_values_need_a_bound_once_and_on_hidden_variants_never(
    tags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = msgspec.structs.replace(case("aten.exp.default", tensor(40)), tags=tags)
    reference = Reference(wanted, CPU)
    evaluated: list[DrawnCall] = []

    def counted(evaluator: Evaluator, call: DrawnCall, *, closely: bool) -> dict[ResultPosition, Float64Probe]:
        evaluated.append(call)
        return probe(evaluator, call, closely=closely)

    monkeypatch.setattr("torchstone.judging.reference.case_reference.probe", counted)
    for seed in range(3):
        expected = [reference.expect(draw_call(wanted, seed, CPU))]
        found = compare_many(expected, [natives(expected[0])], [expected[0].inputs_after])
        assert isinstance(found, Agreement)
        assert (found.errors.max_abs_error is None) == (seed > 0 or bool(tags))
    assert len(evaluated) == (0 if tags else 1)
    outputs = [[output + 1e-3 for output in natives(expected[0])]]
    assert isinstance(compare_many(expected, outputs, [expected[0].inputs_after]), Mismatch)
    outputs = [[output * (1 + 1.2e-7) for output in natives(expected[0])]]
    assert isinstance(compare_many(expected, outputs, [expected[0].inputs_after]), Agreement)
    assert len(evaluated) == (3 if tags else 4), "what is not torch's own is compared in full, what is wrong twice"


# Laws.

OPERATORS = (
    "aten.exp.default",
    "aten.relu.default",
    "aten.floor.default",
    "aten.tanh.default",
    "aten.sin.default",
    "aten.sqrt.default",
    "aten.softmax.int",
    "aten.cumsum.default",
    "aten.sum.dim_IntList",
    "aten.var.correction",
    "aten.mul.Tensor",
    "aten.div.Tensor",
    "aten.addcdiv.default",
)
FILLS = (Normal(), Normal(0.0, 1e4), Normal(3.0, 1e-3), Uniform(0.5, 0.75), Integers(-4, 5))


@st.composite
def any_case(draw: st.DrawFn) -> Case:
    operator = draw(st.sampled_from(OPERATORS))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "float16", "float64"]))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    strides = None
    if draw(st.booleans()):
        strides = tuple(draw(st.permutations([2 * 9**i for i in range(len(shape))])))
    recipe = tensor(
        *shape, dtype=dtype, fill=draw(st.sampled_from(FILLS)), strides=strides, offset=draw(st.integers(0, 3))
    )
    if operator in ("aten.softmax.int", "aten.cumsum.default"):
        return case(operator, recipe, -1)
    if operator in ("aten.sum.dim_IntList", "aten.var.correction"):
        return case(operator, recipe, [-1])
    return case(operator, *[recipe] * {"mul": 2, "div": 2, "addcdiv": 3}.get(operator.split(".")[1], 1))


seeds = st.integers(0, 2**32)
laws = settings(max_examples=60, deadline=None, derandomize=True)
quiet = pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning")


@quiet
@laws
@given(any_case(), seeds)
def test_law_torchs_own_result_always_agrees(wanted: Case, seed: int) -> None:
    expected = expected_for(wanted, seed)
    assert isinstance(judged(expected, *natives(expected)), Agreement)


@quiet
@laws
@given(any_case(), seeds)
def test_law_the_exact_result_rounded_always_agrees(wanted: Case, seed: int) -> None:
    expected = expected_for(wanted, seed)
    exact = expected.values()[FIRST].exact
    if exact is not None:
        assert isinstance(judged(expected, exact.to(expected.outputs[0].dtype)), Agreement)


@quiet
@laws
@given(any_case(), seeds, st.data())
def test_law_one_element_moved_beyond_its_bound_disagrees_and_is_named(
    wanted: Case, seed: int, data: st.DataObject
) -> None:
    expected = expected_for(wanted, seed)
    values = expected.values(closely=expected.gains_by_looking_closely)[FIRST]
    (moved,) = natives(expected)
    if moved.numel() == 0 or values.exact is None or values.bound is None:
        return
    place = data.draw(st.integers(0, moved.numel() - 1))
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), moved.shape))
    limits = torch.finfo(moved.dtype)
    target = float(values.exact[index] + (2.0 * values.bound[index] + abs(float(values.exact[index])) * 4 * limits.eps))
    moved[index] = target + abs(target) * 4 * limits.eps + limits.tiny * 2
    if not math.isfinite(float(moved[index])) or not math.isfinite(float(values.exact[index])):
        return
    distance = abs(float(moved[index]) - float(values.native[index]))
    largest = float(values.native.nan_to_num(0.0, 0.0, 0.0).abs().max())
    for item in (expected, *expected.batch.reference.expect_many([expected.call])):
        if not item.with_bounds and distance < max(1e-3, 2 * limits.eps) * largest:
            continue  # Screening has the level of the whole case in the place of the element's neighbourhood.
        found = compare_many([item], [[moved]], [expected.inputs_after])
        assert isinstance(found, Mismatch)
        assert f"worst at {list(index)}" in found.message


@quiet
@laws
@given(any_case(), seeds, st.floats(0.0, 3.0))
def test_law_what_screening_accepts_the_full_comparison_accepts(wanted: Case, seed: int, strength: float) -> None:
    reference = Reference(wanted, CPU)
    expected = reference.expect(draw_call(wanted, seed, CPU))
    values = expected.values()[FIRST]
    if values.exact is None or values.bound is None:
        return
    noise = torch.linspace(-1.0, 1.0, values.bound.numel(), dtype=torch.float64).reshape(values.bound.shape)
    output = (values.exact + strength * noise * values.bound).to(values.native.dtype)
    screened = compare_many(reference.expect_many([expected.call]), [[output]], [expected.inputs_after])
    if screened == Agreement(ErrorStatistics(), 1):
        assert isinstance(judged(expected, output), Agreement)


@laws
@given(seeds, st.integers(-20, 20), st.floats(-2e-5, 2e-5))
def test_law_scaling_everything_by_a_power_of_two_changes_no_verdict(seed: int, power: int, off: float) -> None:
    verdicts = []
    for scale in (1.0, 2.0**power):
        wanted = case("aten.sum.dim_IntList", tensor(4, 40, fill=Normal(0.0, scale)), [1])
        expected = expected_for(wanted, seed)
        exact = expected.values()[FIRST].exact
        assert exact is not None
        verdicts.append(type(judged(expected, (exact + off * scale).float())))
    assert verdicts[0] is verdicts[1]


@pytest.mark.parametrize("stated", ["contiguous_format", "channels_last"])
def test_where_a_memory_format_is_stated_strides_are_part_of_the_answer(stated: str) -> None:
    wanted = case("aten.clone.default", tensor(2, 3, 4, 5, strides=(60, 1, 3, 12)))
    wanted = msgspec.structs.replace(wanted, kwargs={"memory_format": schema.MemoryFormat(stated)})
    expected = expected_for(wanted)
    (right,) = natives(expected)
    assert isinstance(judged(expected, right), Agreement)
    other = torch.preserve_format if stated == "channels_last" else torch.channels_last
    wrong = expected.call.args[0].clone(memory_format=other)
    found = refused(expected, wrong)
    assert found.reason == "structure"
    assert f"got strides {list(wrong.stride())}, expected {list(right.stride())}" in found.message
    (quick,) = Reference(wanted, CPU).expect_many([expected.call])
    assert isinstance(compare_many([quick], [[wrong]], [quick.inputs_after]), Mismatch)


def test_single_slices_and_nothing_lie_as_they_like() -> None:
    stated = {"memory_format": schema.MemoryFormat("contiguous_format")}
    for shape, strides in (((4, 1), (1, 9)), ((0, 3), (1, 1))):
        expected = expected_for(msgspec.structs.replace(case("aten.clone.default", tensor(*shape)), kwargs=stated))
        (right,) = natives(expected)
        assert isinstance(judged(expected, torch.empty_strided(shape, strides).copy_(right)), Agreement)


def test_elsewhere_strides_are_the_kernels_own() -> None:
    for kwargs in ({}, {"memory_format": schema.MemoryFormat("preserve_format")}):
        expected = expected_for(msgspec.structs.replace(case("aten.clone.default", tensor(4, 6)), kwargs=kwargs))
        (right,) = natives(expected)
        assert isinstance(judged(expected, right.t().contiguous().t()), Agreement)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_step_of_the_dtype_is_a_step_and_not_a_rounding(dtype: str) -> None:
    wanted = Case("test", "aten.nextafter.default", (Tensor((24, 48), dtype, Normal()),) * 2)
    reference = Reference(wanted, torch.device("cpu"))
    call = draw_call(wanted, 3, torch.device("cpu"))
    x, towards = call.args
    storages = [tensor.storage for tensor in call.tensors]
    assert isinstance(compare(reference.expect(call), [torch.nextafter(x, towards)], storages), Agreement)
    found = compare(reference.expect(call), [x.clone()], storages)
    assert isinstance(found, Mismatch)
    got, expected = found.message.split("got ")[1].split(", error")[0].split(", expected ")
    assert got != expected, "as many digits as it takes"


def test_what_is_made_of_numbers_alone_is_allowed_their_rounding() -> None:
    given = {"dtype": DType("float32"), "device": JudgedDevice()}
    wanted = Case("test", "aten.linspace.default", (Scalar(-3.0), Scalar(7.0), Scalar(500)), given)
    expected = Reference(wanted, torch.device("cpu")).expect(draw_call(wanted, 3, torch.device("cpu")))
    step_by_step = -3.0 + torch.arange(500, dtype=torch.float32) * torch.tensor(10.0 / 499)
    assert isinstance(compare(expected, [step_by_step], []), Agreement)
    assert isinstance(compare(expected, [step_by_step + 1e-5], []), Mismatch)
