"""Operators without a float64 evaluation: bounds come from torch's own results on moved inputs."""

from __future__ import annotations

import pytest
import torch

from judging.cases import KINDS, Kind, case, lower_precision, storages_of, tensor
from torchstone.calls.reference_calls import Evaluator
from torchstone.judging import Agreement, Mismatch, Reference, ResultPosition, compare, draw_call
from torchstone.judging.reference.native_noise import NativeNoise, roughness
from torchstone.schema import Case, Integers, Uniform

CPU = torch.device("cpu")
FIRST = ResultPosition("output", 0)
SUMS = [kind for kind in KINDS if kind.adds]


@pytest.fixture(autouse=True)
def no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise NotImplementedError("not implemented for 'Double'")

    monkeypatch.setattr("torchstone.judging.reference.case_reference.probe", fails)


def rough(wanted: Case) -> tuple[NativeNoise, torch.Tensor]:
    call = draw_call(wanted, 0, CPU)
    evaluation = Evaluator(wanted, CPU).native([call])
    assert evaluation is not None
    return roughness(Evaluator(wanted, CPU), call, {FIRST: evaluation.tensors[FIRST][0]})[FIRST], call.tensors[0].view


def test_the_slope_is_found_in_the_dtype_of_the_case() -> None:
    for dtype, within in (("float32", 0.01), ("float16", 0.1), ("bfloat16", 0.2)):
        found, x = rough(case("aten.exp.default", tensor(400, dtype=dtype, fill=Uniform(1.0, 2.0))))
        assert torch.allclose(found.slope, x.double() * x.double().exp(), rtol=within)


def test_the_noise_is_that_of_rounding_and_of_lower_precision_inside() -> None:
    found, x = rough(case("aten.exp.default", tensor(4000, fill=Uniform(1.0, 2.0))))
    roundings = float((found.noise / x.double().exp()).square().mean().sqrt()) * 2**24
    assert 0.2 < roundings < 4.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", SUMS, ids=lambda kind: kind.name)
def test_honest_orders_of_adding_agree(kind: Kind, dtype: str) -> None:
    for size in kind.sizes:
        reference = Reference(kind.case(size, dtype), CPU)
        for seed in range(3):
            call = draw_call(reference.case, seed, CPU)
            expected = reference.expect(call)
            for name, kernel in kind.honest.items():
                found = compare(expected, [kernel(*call.args)], storages_of(call))
                assert isinstance(found, Agreement), f"{name}: {found.message}"
                assert (found.errors.rms_over_bound or 0.0) < 0.6
                assert (found.errors.bias_over_bound or 0.0) < 0.6


@pytest.mark.parametrize("kind", SUMS, ids=lambda kind: kind.name)
def test_lower_precision_is_told_apart(kind: Kind) -> None:
    for size in kind.sizes:
        reference = Reference(kind.case(size, "float32"), CPU)
        call = draw_call(reference.case, 0, CPU)
        for name, kernel in lower_precision(kind).items():
            found = compare(reference.expect(call), [kernel(*call.args)], storages_of(call))
            assert isinstance(found, Mismatch), f"{name} at {size}"


def test_errors_that_are_small_one_by_one_and_large_together_are_refused() -> None:
    wanted = case("aten.exp.default", tensor(4000, fill=Uniform(1.0, 2.0)))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    native = expected.outputs[0].native
    found = compare(expected, [native * (1 + 20 * 2.0**-24)], expected.inputs_after)
    assert isinstance(found, Mismatch)
    assert found.reason == "precision"


def test_results_of_whole_numbers_have_nothing_to_move() -> None:
    wanted = case("aten.sqrt.default", tensor(30, dtype="int64", fill=Integers(1, 900)))
    values = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)).values()[FIRST]
    assert values.spread is None
    assert values.bound is not None


def test_what_is_written_has_a_bound_inside_its_view() -> None:
    wanted = case("aten.exp_.default", tensor(2, 3, strides=(4, 1), offset=1))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    bound = expected.values()[ResultPosition("argument", 0)].bound
    assert bound is not None
    assert bound.count_nonzero() == 6
    assert isinstance(compare(expected, [expected.outputs[0].native], expected.inputs_after), Agreement)
