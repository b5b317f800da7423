"""Planted values: where operators decide, a function of the seed, and held against a kernel only if torch stands by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging.cases import plans_for
from torchstone.errors import UsageError
from torchstone.judging import (
    Agreement,
    Expected,
    Mismatch,
    Reference,
    compare_many,
    draw_call,
    draw_calls,
    plant,
    planted_calls,
)
from torchstone.judging.compare.reference_trust import reference_is_consistent
from torchstone.judging.variant_tag import HIDDEN
from torchstone.schema import Argument, Booleans, Case, Integers, Normal, Scalar, Sequence, Tensor, Uniform

CPU = torch.device("cpu")


def case(operator: str, *args: Argument) -> Case:
    """Without variants: then every plan is tried on it."""
    return Case("tests", f"aten.{operator}", args, jitter=False)


def normal(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, Normal(), strides)


def dims(*numbers: int) -> Sequence:
    return Sequence(tuple(Scalar(number) for number in numbers))


SPECIAL = Tensor((16, 33), "float32", Normal(specials=True))
WHOLE = Tensor((16, 33), "int64", Integers(-100, 100))
ROWS = Tensor((20,), "int64", Integers(0, 16))
NLL = case(
    "nll_loss_forward.default",
    normal(16, 5),
    Tensor((16,), "int64", Integers(0, 5)),
    Scalar(None),
    Scalar(1),
    Scalar(-100),
)


def judged(wanted: Case, kernel: Callable[..., Any], seed: int = 0) -> Agreement | Mismatch:
    """All planted calls of a case, as the judge compares them."""
    usual = Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU))
    usual.values()
    calls = planted_calls(usual, seed)
    results = [kernel(*expected.call.args) for expected in calls]
    outputs = [list(result) if isinstance(result, tuple) else [result] for result in results]
    return compare_many(calls, outputs, [[t.storage for t in expected.call.tensors] for expected in calls])


def _variance_in_one_pass(x: torch.Tensor, correction: int = 1) -> torch.Tensor:
    count = x.shape[-1]
    return ((x * x).mean(-1) - x.mean(-1).square()).clamp_min(0) * count / (count - correction)


def _variance_in_two_passes(x: torch.Tensor, correction: int = 1) -> torch.Tensor:
    count = x.shape[-1]
    mean = x.cumsum(-1)[:, -1:] / count
    return (x - mean).square().flip(-1).cumsum(-1)[:, -1] / (count - correction)


def _layer_norm(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float, variance: Callable[[torch.Tensor, int], torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    mean, rstd = x.mean(-1, keepdim=True), (variance(x, 0).unsqueeze(-1) + eps).rsqrt()
    return (x - mean) * rstd * w + b, mean, rstd


def _folded_batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    variance, mean = torch.var_mean(x, (0, 2), correction=0)
    rstd = (variance + 1e-5).rsqrt()
    scale = w * rstd
    return x * scale[:, None] + (b - mean * scale)[:, None], mean, rstd


WRONG: dict[str, tuple[Case, Callable[..., Any]]] = {
    "nansum as sum": (case("nansum.default", normal(16, 33), dims(1)), torch.sum),
    "amax without NaN": (case("amax.default", SPECIAL, dims(1)), lambda x, d: x.nan_to_num(nan=-9e9).amax(d)),
    "nanmedian as median": (case("nanmedian.default", normal(64)), torch.median),
    "no negative indices": (
        case("index.Tensor", normal(16, 7), Sequence((ROWS,))),
        lambda x, indices: x[indices[0].clamp_min(0)],
    ),
    "softmax that overflows": (
        case("_softmax.default", normal(16, 33), Scalar(1), Scalar(False)),
        lambda x, d, _: x.exp() / x.exp().sum(d, keepdim=True),
    ),
    "every target counts": (
        NLL,
        lambda x, t, w, r, i: (-x.gather(1, t.clamp_min(0)[:, None]).mean(), torch.tensor(float(len(t)))),
    ),
    "equal to no number": (case("eq.Scalar", normal(16, 33), Scalar(0.75)), lambda x, y: torch.zeros_like(x).bool()),
    "equal to nothing": (case("eq.Tensor", normal(16, 33), normal(33)), lambda x, y: torch.zeros_like(x).bool()),
    "greater for greater or equal": (case("ge.Scalar", normal(16, 33), Scalar(0.75)), torch.gt),
    "no value at 0": (case("heaviside.default", normal(16, 33), normal(33)), lambda x, y: (x > 0).to(x.dtype)),
    "0/0": (case("sinc.default", normal(16, 33)), lambda x: (torch.pi * x).sin() / (torch.pi * x)),
    "no upper end": (case("hardtanh.default", normal(16, 33), Scalar(0), Scalar(6)), lambda x, a, b: x.relu()),
    "keeps NaN": (case("nan_to_num.default", normal(16, 33)), torch.clone),
    "a layer norm in one pass": (
        case("native_layer_norm.default", normal(16, 64), dims(64), normal(64), normal(64), Scalar(1e-5)),
        lambda x, s, w, b, e: _layer_norm(x, w, b, e, _variance_in_one_pass),
    ),
    "a variance in one pass": (case("var.dim", normal(16, 64), dims(1)), lambda x, d: _variance_in_one_pass(x)),
    "a deviation in one pass": (case("std.dim", normal(16, 64), dims(1)), lambda x, d: _variance_in_one_pass(x).sqrt()),
    "a deviation of one value is NaN": (
        case("std.correction", normal(16, 64), dims(1)),
        lambda x, d: torch.where((x == x[:, :1]).all(1), torch.nan, x.std(1)),
    ),
    "a product in 32 bits": (case("mul.Tensor", WHOLE, WHOLE), lambda x, y: (x * y).int().long()),
    "a copy in 8 bits": (case("clone.default", WHOLE), lambda x: x.to(torch.int8).long()),
    "whole numbers compared in float32": (case("gt.Tensor", WHOLE, WHOLE), lambda x, y: x.float() > y.float()),
    "nothing at ten": (
        case("gelu.default", normal(16, 33)),
        lambda x: torch.where((x.abs() > 6.6) & (x.abs() < 15.9), 0.0, torch.nn.functional.gelu(x)),
    ),
    "small factors as 0": (
        case("mul.Tensor", normal(16, 33), normal(16, 33)),
        lambda x, y: torch.where((x.abs() < 1e-8) | (y.abs() < 1e-8), 0.0, x * y),
    ),
    "a maximum without the tail": (case("max.default", normal(33, 65)), lambda x: x.view(-1)[:2112].amax()),
    "a masked row is NaN": (
        case("_safe_softmax.default", normal(16, 33), Scalar(1)),
        lambda x, d: torch.softmax(x, d),
    ),
    "a flat row is NaN": (
        case("native_layer_norm.default", normal(16, 64), dims(64), normal(64), normal(64), Scalar(1e-5)),
        lambda x, s, w, b, e: _layer_norm(x, w, b, 0.0, _variance_in_two_passes),
    ),
    "halves up": (case("round.default", normal(16, 33)), lambda x: torch.floor(x + 0.5)),
    "a triangle by a product": (
        case("triu.default", normal(16, 33)),
        lambda x: x * torch.ones(x.shape[-2:]).triu(),
    ),
    "filled by a product": (
        case("masked_fill.Scalar", normal(16, 33), Tensor((16, 33), "bool", Booleans()), Scalar(2.0)),
        lambda x, m, v: x * (~m) + v * m,
    ),
    "equal if the difference is 0": (case("eq.Tensor", normal(16, 33), normal(16, 33)), lambda x, y: (x - y) == 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_where_an_operator_decides_is_refused(name: str) -> None:
    wanted, kernel = WRONG[name]
    assert all(isinstance(judged(wanted, kernel, seed), Mismatch) for seed in range(5))


HONEST: dict[str, tuple[Case, Callable[..., Any]]] = {
    "NaN as people treat it": (case("relu.default", normal(16, 33)), lambda x: torch.where(x > 0, x, 0.0)),
    "a sum in another order": (
        case("sum.dim_IntList", normal(16, 33), dims(1)),
        lambda x, d: x.flip(1).cumsum(1)[:, -1],
    ),
    "a mean with infinities": (case("mean.dim", normal(16, 33), dims(1)), lambda x, d: x.double().mean(1).float()),
    "a gelu more precise than torch's": (
        case("gelu.default", normal(16, 33)),
        lambda x: (x.double() * 0.5 * torch.erfc(-x.double() / 2**0.5)).float(),
    ),
    "a layer norm in two passes": (
        case("native_layer_norm.default", normal(16, 64), dims(64), normal(64), normal(64), Scalar(1e-5)),
        lambda x, s, w, b, e: _layer_norm(x, w, b, e, _variance_in_two_passes),
    ),
    "a variance in two passes": (case("var.dim", normal(16, 64), dims(1)), lambda x, d: _variance_in_two_passes(x)),
    "a variance in one pass in float64": (
        case("var.dim", normal(16, 64), dims(1)),
        lambda x, d: _variance_in_one_pass(x.double()).float(),
    ),
    "a variance of 16 bits in one pass in float32": (
        case("var.dim", normal(16, 64, dtype="bfloat16"), dims(1)),
        lambda x, d: _variance_in_one_pass(x.float()).bfloat16(),
    ),
    "a batch norm folded into a factor and a summand": (
        case(
            "native_batch_norm.default",
            *(normal(6, 8, 33), normal(8), normal(8), Scalar(None), Scalar(None)),
            *(Scalar(True), Scalar(0.1), Scalar(1e-5)),
        ),
        lambda x, w, b, *rest: _folded_batch_norm(x, w, b),
    ),
    "a log-softmax by what it takes off": (
        case("_log_softmax.default", normal(16, 33), Scalar(1), Scalar(False)),
        lambda x, d, _: x - x.logsumexp(d, keepdim=True),
    ),
    "a product in another order": (
        case("mm.default", normal(16, 64), normal(64, 17)),
        lambda a, b: (a.unsqueeze(2) * b).flip(1).cumsum(1)[:, -1],
    ),
    "a distance by another formula": (
        case("_cdist_forward.default", normal(9, 32), normal(7, 32), Scalar(2.0), Scalar(2)),
        lambda a, b, p, m: (a.unsqueeze(1) - b).square().flip(-1).sum(-1).sqrt(),
    ),
    "a branch where torch multiplies": (
        case("hardswish.default", normal(16, 33)),
        lambda x: torch.where(x == -torch.inf, 0.0, x * (x + 3).clamp(0, 6) / 6),
    ),
    "a product of whole numbers by halves": (
        case("mul.Tensor", WHOLE, WHOLE),
        lambda x, y: x * (y & 0xFFFFFFFF) + x * ((y >> 32) << 32),
    ),
    "a deviation of one value is what rounding leaves": (
        case("std.correction", normal(16, 64), dims(1)),
        lambda x, d: torch.where((x == x[:, :1]).all(1), 1e-3 * x[:, 0].abs(), x.std(1)),
    ),
    "a deviation in two passes": (
        case("std.correction", normal(16, 64), dims(1)),
        lambda x, d: _variance_in_two_passes(x).sqrt(),
    ),
    "a variance in two passes, in float16": (
        case("var.correction", normal(16, 64, dtype="float16"), dims(1)),
        lambda x, d: _variance_in_two_passes(x.float()).half(),
    ),
    "an elu that loses tiny arguments": (
        case("elu.default", normal(16, 33)),
        lambda x: torch.where(x > 0, x, x.exp() - 1),
    ),
    "a relu that makes NaN of infinities": (case("relu.default", normal(16, 33)), lambda x: x * (x > 0)),
    "indices by themselves": (case("index.Tensor", normal(16, 7), Sequence((ROWS,))), lambda x, i: x[i[0]]),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_meet_planted_values(name: str) -> None:
    wanted, kernel = HONEST[name]
    for seed in range(5):
        found = judged(wanted, kernel, seed)
        assert isinstance(found, Agreement), found


FLOATS = st.sampled_from(["float32", "float16", "bfloat16", "float64"])


@given(st.integers(0, 2**63 - 1), FLOATS, st.integers(1, 4), st.booleans())
def test_planted_values_are_a_function_of_the_seed(seed: int, dtype: str, count: int, once: bool) -> None:
    wanted = case("index_add.default", normal(6, 5, dtype=dtype), Scalar(0), ROWS, normal(20, 5, dtype=dtype))
    plans = plans_for(wanted, once=once)
    assert any("negative" in plan for plan in plans)
    for plan in plans:
        first, again = (plant(draw_calls(wanted, seed, count, CPU)[-1], plan) for _ in range(2))
        plain = draw_calls(wanted, seed, count, CPU)[-1]
        assert first.planted == plan
        pairs = list(zip(first.tensors, again.tensors, plain.tensors, strict=True))
        assert all(torch.equal(_bits(a.storage), _bits(b.storage)) for a, b, _ in pairs)
        if plan != "meeting":  # all indices may be the same as they are
            assert any(not torch.equal(_bits(a.storage), _bits(c.storage)) for a, _, c in pairs)


def _bits(storage: torch.Tensor) -> torch.Tensor:
    return storage.view(torch.uint8)


@given(st.integers(0, 2**32), st.floats(-4, 0), st.floats(0.5, 4))
def test_a_stated_range_is_kept(seed: int, low: float, high: float) -> None:
    wanted = case("clamp.default", Tensor((64,), "float32", Uniform(low, high)), Scalar(-1.0), Scalar(1.0))
    assert plans_for(wanted, once=False) == ["numbers", "beyond"]
    values = plant(draw_call(wanted, seed, CPU), "numbers").args[0].double()
    assert bool(((values >= low) & (values < high)).all())


def test_expanded_and_empty_tensors_are_planted_as_far_as_there_is_memory() -> None:
    expanded = case("add.Tensor", normal(8, 8, strides=(0, 1)), normal(0, 8))
    for plan in plans_for(expanded, once=False):
        call = plant(draw_call(expanded, 1, CPU), plan)
        assert torch.equal(call.args[0][0].nan_to_num(), call.args[0][5].nan_to_num())
    assert plans_for(case("relu.default", normal(0, 8)), once=False) == []


def test_no_value_is_repeated_where_results_say_where_one_stands() -> None:
    wanted = case("topk.default", normal(4, 64), Scalar(3))
    calls = planted_calls(Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)), 3)
    assert {expected.call.planted for expected in calls} >= {"numbers once", "magnitudes once"}
    for expected in calls:
        if expected.call.planted in ("repeated", "infinite"):
            continue  # what is promised about equal values all the same
        values = expected.call.args[0]
        assert int(values.isnan().sum()) <= 1
        assert values.unique().numel() == values.numel()


def test_a_negative_index_is_planted_only_where_it_counts_from_the_end() -> None:
    wanted = case("gather.default", normal(16, 7), Scalar(0), Tensor((4, 7), "int64", Integers(0, 16)))
    calls = planted_calls(Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)), 3)
    assert "negative" not in {expected.call.planted for expected in calls}


def test_torch_does_not_stand_by_what_only_float64_can_hold() -> None:
    """The largest float32 is what torch makes of an infinity here, and the largest float64 in float64."""
    wanted = case("nan_to_num.default", normal(4, 64))
    reference = Reference(wanted, CPU)
    found = {plan: reference.expect_many([plant(draw_call(wanted, 0, CPU), plan)]) for plan in ("nan", "infinities")}
    assert reference_is_consistent(*found["nan"])
    assert not reference_is_consistent(*found["infinities"])


def test_libraries_that_decompose_matrices_are_spared_what_is_no_number() -> None:
    assert plans_for(case("linalg_qr.default", normal(4, 4)), once=False) == ["numbers", "hundreds"]
    assert "nan" in plans_for(case("linalg_vector_norm.default", SPECIAL), once=False)
    assert "nan" not in plans_for(case("linalg_qr.default", SPECIAL), once=False)


def test_random_operators_and_unknown_plans() -> None:
    wanted = case("bernoulli.p", normal(64), Scalar(0.5))
    assert planted_calls(Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU)), 3) == []
    with pytest.raises(UsageError, match="no plan"):
        plant(draw_call(wanted, 0, CPU), "weeds")


def _plans(wanted: Case, seed: int) -> set[str]:
    return {expected.call.planted for expected in planted_calls(_usual(wanted, seed), seed)}


def _usual(wanted: Case, seed: int) -> Expected:
    return Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU))


def test_a_large_case_meets_what_overflows_and_counts_back_and_some_more() -> None:
    softmax = case("_softmax.default", normal(64, 512), Scalar(1), Scalar(False))
    found = [_plans(softmax, seed) for seed in range(20)]
    assert all({"hundreds", "moved", "masked"} < plans for plans in found)
    assert {len(plans) for plans in found} == {5, 6}  # 4: a softmax keeps no factor
    assert set().union(*found) == {"hundreds", "moved", "numbers", "magnitudes", "masked", "flat"}
    enormous = case("relu.default", normal(1024, 1025))
    assert all(len(_plans(enormous, seed)) == 2 for seed in range(3))
    rows = Tensor((20,), "int64", Integers(0, 4096))
    index = case("index.Tensor", normal(4096, 64), Sequence((rows,)))  # more than the host is asked about
    assert all({"hundreds", "negative"} < _plans(index, seed) for seed in range(3))


def test_a_large_variant_meets_what_overflows_and_one_more() -> None:
    norm = case("native_layer_norm.default", normal(64, 48), dims(48), normal(48), normal(48), Scalar(1e-5))
    norm = msgspec.structs.replace(norm, tags=("hidden",))
    found = [_plans(norm, seed) for seed in range(10)]
    assert all("hundreds" in plans and len(plans) <= 2 for plans in found)
    assert set().union(*found) == {"hundreds", "moved", "numbers", "magnitudes", "flat"}


RNN = case(
    "rnn_tanh.input",
    normal(5, 12, 20),
    normal(1, 12, 32),
    Sequence((normal(32, 20), normal(32, 32), normal(32), normal(32))),
    *(Scalar(value) for value in (True, 1, 0.0, False, False, False)),
)


def _dropout(p: float, *, train: bool) -> Case:
    return case("native_dropout.default", normal(64, 65), Scalar(p), Scalar(train))


def test_operators_that_might_draw_and_do_not_are_planted_before_and_after_a_call_told_so() -> None:
    assert _plans(RNN, 0) == {"numbers", "hundreds", "magnitudes", "moved", "flat"}
    assert _plans(_dropout(0.5, train=False), 0) == {"numbers", "hundreds", "magnitudes", "moved", "flat", ""}
    assert _plans(_dropout(0.5, train=True), 0) == set()
    usual = _usual(RNN, 1)
    usual.batch.reference.random_results.draws_nothing = True  # type: ignore[union-attr]
    assert planted_calls(usual, 0)


def test_a_recurrence_that_overflows_is_refused() -> None:
    def kernel(x: torch.Tensor, hx: torch.Tensor, weights: list[torch.Tensor], *_: object) -> Any:
        wi, wh, bi, bh = weights
        h, found = hx[0], []
        for row in x:
            e = (2 * (row @ wi.T + bi + h @ wh.T + bh)).exp()
            h = (e - 1) / (e + 1)
            found.append(h)
        return torch.stack(found), h.unsqueeze(0)

    assert isinstance(judged(RNN, kernel), Mismatch)


def test_a_tensor_is_moved_as_a_whole_where_that_may_matter() -> None:
    layer_norm = case("native_layer_norm.default", normal(16, 64), dims(64), normal(64), normal(64), Scalar(1e-5))
    plain, moved = draw_call(layer_norm, 3, CPU), plant(draw_call(layer_norm, 3, CPU), "moved")
    by = (moved.args[0] - plain.args[0]).double()
    assert 2**12 <= by.mean().abs() <= 2**13
    assert by.std() < 1e-3
    assert torch.equal(moved.args[2], plain.args[2])
    assert "moved" not in plans_for(case("relu.default", normal(16, 33)), once=False)
    assert "moved" not in plans_for(case("var.dim", normal(16, 64, dtype="bfloat16"), dims(1)), once=False)
    assert not any("moved" in plan for plan in plans_for(case("sort.default", normal(16, 64)), once=True))


def test_who_asks_again_meets_the_same_plans() -> None:
    """Plans come in turn; but a candidate that dies of one, and is tried again, must not meet another instead."""
    args = (Tensor((9, 65), "float32", Normal()), Scalar(-1), Scalar(False))
    softmax = Case("tests", "aten._softmax.default", args, tags=(HIDDEN,))
    (usual,) = Reference(softmax, CPU).expect_many([draw_call(softmax, 7, CPU)])

    def plans(seed: int) -> list[str]:
        return [expected.call.planted for expected in planted_calls(usual, seed)]

    first = {seed: plans(seed) for seed in range(8)}
    assert len({tuple(sorted(each)) for each in first.values()}) > 1, "plans that are always the same prove nothing"
    assert {seed: plans(seed) for seed in reversed(range(8))} == first


def test_plans_of_one_case_are_not_given_to_another_with_the_same_seed() -> None:
    """A case of whole numbers has nothing to scale, whatever a case of numbers was given before it."""
    for seed in range(8):
        for recipe in (Tensor((64, 64), "float32", Normal()), Tensor((64, 64), "int64", Integers(-9, 9))):
            _plans(Case("tests", "aten.abs.default", (recipe,)), seed)


def test_of_several_rows_one_is_masked_from_its_beginning_and_one_to_its_end() -> None:
    mask = normal(2, 16)
    wanted = case("scaled_dot_product_attention.default", normal(2, 4), normal(16, 4), normal(16, 4), mask)
    for seed in range(20):
        planted = plant(draw_call(wanted, seed, CPU), "padded").args[3]
        assert bool((planted[:, :8] == -torch.inf).all(dim=1).any())
        assert bool((planted[:, 8:] == -torch.inf).all(dim=1).any())
