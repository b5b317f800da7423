"""Agreement of kinds with rules of their own: random, undefined, tied; and errors that are large only together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from judging.calibration import calibrate
from judging.cases import case, left_to_right, storages_of, tensor
from torchstone import operators, schema
from torchstone.judging import (
    Agreement,
    Mismatch,
    Reference,
    ResultPosition,
    Series,
    compare,
    compare_many,
    draw_call,
    draw_calls,
)
from torchstone.judging.audit.adversaries import audit, to_tf32
from torchstone.judging.audit.parallel_audit import audit_in_processes
from torchstone.schema import Case, Integers, Normal, Tensor, Uniform

CPU = torch.device("cpu")
UNIT = Uniform(0.0, 1.0)


def judge(wanted: Case, kernel: Callable[..., Any], calls: int = 4) -> Agreement | Mismatch:
    """The first wrong call of several, every other one compared in full."""
    reference = Reference(wanted, CPU)
    found: Agreement | Mismatch = Agreement(schema.ErrorStatistics())
    for seed in range(calls):
        call = draw_call(wanted, seed, CPU)
        (expected,) = reference.expect_many([call], with_bounds=seed % 2 == 0)
        views = [drawn.view.clone() for drawn in call.tensors]
        args, kwargs = operators.build_arguments(wanted, views, CPU)
        outputs = operators.flatten_outputs(kernel(*args, **kwargs))
        after = [storage.clone() for storage in storages_of(call)]
        for position in reference.contract.mutated:
            operators.view_of(after[position], call.tensors[position].recipe).copy_(views[position])
        found = compare_many([expected], [outputs], [after])
        if isinstance(found, Mismatch):
            return found
    return found


# Errors that are small one by one.


@pytest.mark.parametrize("terms", [64, 1000, 3000])
def test_tf32_inputs_of_positive_sums_are_told_apart_by_the_root_mean_square(terms: int) -> None:
    wanted = case("aten.sum.dim_IntList", tensor(256, terms, fill=Uniform(0.0, 1.0)), [1])
    assert isinstance(judge(wanted, lambda x, _: to_tf32(x).sum(1)), Mismatch)
    assert isinstance(judge(wanted, lambda x, _: left_to_right(x)), Agreement)


def test_a_small_bias_is_told_apart_and_named() -> None:
    wanted = case("aten.exp.default", tensor(4000, dtype="bfloat16"))

    def truncated(x: torch.Tensor) -> torch.Tensor:
        return (x.float().exp().view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()

    found = judge(wanted, truncated)
    assert isinstance(found, Mismatch)
    assert found.reason == "precision"
    assert "the mean of the errors" in found.message
    assert "torch's own mean is" in found.message
    assert found.errors.bias_over_bound is not None
    assert found.errors.bias_over_bound > 1.0
    assert isinstance(judge(wanted, lambda x: x.float().exp().bfloat16()), Agreement)


def test_errors_of_repeated_values_count_once() -> None:
    wanted = case("aten.exp.default", tensor(4000, dtype="bfloat16", fill=Integers(1, 3)))
    assert isinstance(judge(wanted, lambda x: torch.exp2(x.float() * 1.4426950408889634).bfloat16(), 20), Agreement)


def test_screening_sees_a_bias_too() -> None:
    wanted = case("aten.exp.default", tensor(4000, dtype="bfloat16"))
    reference = Reference(wanted, CPU)
    reference.expect(draw_call(wanted, 0, CPU)).values()
    calls = draw_calls(wanted, 1, 3, CPU)
    expected = reference.expect_many(calls)
    outputs = [[(c.args[0].float().exp().view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()] for c in calls]
    found = compare_many(expected, outputs, [storages_of(call) for call in calls])
    assert isinstance(found, Mismatch)
    assert found.reason == "precision"


# Random and undefined values.

NORMAL_ = torch.Tensor.normal_
HONEST: dict[str, tuple[Case, Callable[..., Any]]] = {
    "bernoulli": (case("aten.bernoulli.default", tensor(900, fill=UNIT)), lambda p: 1.0 * (torch.rand(900) < p)),
    "rare": (case("aten.bernoulli.default", tensor(300, fill=Uniform(0.0, 1e-3))), torch.bernoulli),
    "one": (case("aten.bernoulli.default", tensor(1, fill=UNIT)), torch.bernoulli),
    "rand_like": (case("aten.rand_like.default", tensor(40, 50)), torch.rand_like),
    "dropout": (case("aten.native_dropout.default", tensor(500), 0.3, True), torch.ops.aten.native_dropout.default),
    "not training": (case("aten.native_dropout.default", tensor(500), 0.3, False), lambda x, *_: (x, x == x)),
    "cauchy": (case("aten.cauchy.default", tensor(500)), lambda x: torch.empty_like(x).cauchy_()),
    "in place": (case("aten.normal_.default", tensor(20, 9, strides=(1, 20), offset=3), 1.0, 2.0), NORMAL_),
    "permutation": (case("aten.randperm.default", 200), torch.randperm),
    "undefined": (case("aten.empty_like.default", tensor(30)), torch.ones_like),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_draws_of_the_right_distribution_agree(name: str) -> None:
    torch.manual_seed(7)
    assert isinstance(judge(*HONEST[name], calls=20), Agreement)


_KEPT = torch.rand(40, 50)
WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "other probabilities": ("bernoulli", lambda p: torch.bernoulli(torch.full_like(p, 0.5))),
    "zeros": ("bernoulli", torch.zeros_like),
    "the probabilities": ("bernoulli", torch.clone),
    "beyond the interval": ("rand_like", lambda x: torch.rand_like(x) + 1e-3),
    "half the interval": ("rand_like", lambda x: torch.rand_like(x) / 2),
    "a constant": ("rand_like", lambda x: torch.full_like(x, 0.5)),
    "always the same": ("rand_like", lambda x: _KEPT.clone()),
    "few repeated": ("rand_like", lambda x: torch.rand(20).repeat_interleave(100).reshape(40, 50)),
    "unscaled": ("dropout", lambda x, *_: (x * (m := torch.rand_like(x) > 0.3), m)),
    "nothing dropped": ("dropout", lambda x, *_: (x.clone(), x == x)),
    "wrong values": ("not training", lambda x, *_: (x * 1.01, x == x)),
    "not written": ("in place", lambda x, *_: x),
    "in order": ("permutation", torch.arange),
    "another dtype": ("undefined", lambda x: x.double()),
}


@pytest.mark.parametrize("name", WRONG)
def test_draws_of_another_distribution_are_refused(name: str) -> None:
    torch.manual_seed(7)
    honest, kernel = WRONG[name]
    assert isinstance(judge(HONEST[honest][0], kernel), Mismatch)


# Operators that may draw and do not, or always the same.

ATTENTION = case(
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    tensor(1, 1, 1, 8),
    tensor(1, 1, 33, 8),
    tensor(1, 1, 33, 8),
)
QUIET: dict[str, tuple[Case, Callable[..., Any]]] = {
    "attention": (ATTENTION, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default),
    "not training": (case("aten.dropout.default", tensor(3, 5), 0.5, False), lambda x, *_: x.clone()),
    "never": (case("aten.bernoulli.p", tensor(5), 0.0), torch.ops.aten.bernoulli.p),
    "never, many": (case("aten.bernoulli.p", tensor(500), 0.0), torch.ops.aten.bernoulli.p),
    "hardly ever": (case("aten.bernoulli.p", tensor(5), 1e-4), torch.ops.aten.bernoulli.p),
    "one of one": (case("aten.randint_like.default", tensor(1), 1), torch.randint_like),
    "all dropped": (case("aten.native_dropout.default", tensor(7), 1.0, True), torch.ops.aten.native_dropout.default),
}


def noise(like: Callable[..., Any]) -> Callable[..., Any]:
    """What the operator gives, each tensor in place of random numbers."""

    def kernel(*args: Any) -> Any:
        given = like(*args)
        drawn = [torch.randn(leaf.shape).to(leaf.dtype) for leaf in operators.flatten_outputs(given)]
        return tuple(drawn) if isinstance(given, tuple) else drawn[0]

    return kernel


@pytest.mark.parametrize("name", QUIET)
def test_where_nothing_differs_from_draw_to_draw_noise_is_refused_however_few_the_elements(name: str) -> None:
    wanted, kernel = QUIET[name]
    assert isinstance(judge(wanted, kernel, calls=12), Agreement)
    assert isinstance(judge(wanted, noise(kernel), calls=12), Mismatch)


def test_what_hardly_ever_differs_may_do_so_once() -> None:
    wanted, _ = QUIET["hardly ever"]
    turns = iter(range(1000))
    kernel = lambda x, _: torch.eye(5)[0] if next(turns) == 3 else torch.zeros(5)  # noqa: E731
    assert isinstance(judge(wanted, kernel, calls=12), Agreement)


# Ties.

TIED = tensor(6, 40, fill=Integers(0, 5))


def reversed_indices(name: str) -> Callable[..., Any]:
    """The operator on the flipped dimension: other winners of every tie."""

    def kernel(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        values, indices = getattr(x.flip(1), name)(*args, **kwargs)
        return values, x.shape[1] - 1 - indices

    return kernel


@pytest.mark.parametrize(("name", "args"), [("topk", [7]), ("sort", [1]), ("kthvalue", [9, 1])])
def test_any_of_equal_values_may_be_pointed_at(name: str, args: list[int]) -> None:
    wanted = case(f"aten.{name}.default", TIED, *args)
    assert isinstance(judge(wanted, reversed_indices(name)), Agreement)
    wrong = judge(wanted, lambda x, *a: (getattr(x, name)(*a)[0], (getattr(x, name)(*a)[1] + 1) % 40))
    assert isinstance(wrong, Mismatch)


def test_the_same_index_may_not_be_given_twice() -> None:
    wanted = case("aten.topk.default", tensor(6, 40, fill=Integers(0, 2)), 3)
    first = lambda x, k: (x.topk(k)[0], x.argmax(1, keepdim=True).expand(-1, 3))  # noqa: E731
    assert isinstance(judge(wanted, first), Mismatch)


def test_where_the_first_of_equal_values_is_promised_it_must_be_given() -> None:
    wanted = case("aten.max.dim", TIED, 1)
    assert isinstance(judge(wanted, reversed_indices("max")), Mismatch)
    stable = case("aten.sort.stable", TIED, stable=True, dim=1)
    assert isinstance(judge(stable, reversed_indices("sort")), Mismatch)


# Whole suites.


def test_honest_variants_agree_on_the_smoke_suite_and_lower_precision_does_not() -> None:
    tally = calibrate(range(1), large=False)
    assert tally.judged > 600
    assert not tally.messages
    assert not tally.missed
    assert tally.lower > 10


def test_an_audit_finds_cases_that_tell_nothing_and_leaves_excused_ones() -> None:
    blind = case("aten.mul.Scalar", tensor(30), 0.0)
    excused = schema.Case("test", blind.operator, blind.args, indistinct="zero is right")
    sharp = case("aten.exp.default", tensor(30))
    found = audit([blind, sharp, schema.Case("test", sharp.operator, (tensor(0),), indistinct="empty")], CPU)
    assert [finding.operator for finding in found.unexcused] == ["aten.mul.Scalar"]
    assert "zeros" in found.unexcused[0].adversaries
    assert len(found.findings) == 2
    assert excused.key == blind.key


def test_an_audit_by_several_processes_finds_the_same_in_the_same_order() -> None:
    cases = [case("aten.mul.Scalar", tensor(30), 0.0), case("aten.exp.default", tensor(30)), case("aten.abs.default")]
    told: list[tuple[int, int]] = []
    found = audit_in_processes(cases, CPU, 2, lambda done, total: told.append((done, total)))
    assert found == audit(cases, CPU)
    assert list(found.unjudged) == ["aten.abs.default()"]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_compared_values_may_be_handed_in() -> None:
    wanted = case("aten.exp.default", tensor(9))
    expected = Reference(wanted, CPU).expect(draw_call(wanted, 0, CPU))
    native = [output.native for output in expected.outputs]
    assert isinstance(compare(expected, native, expected.inputs_after, expected.values()), Agreement)


SPECIAL = Tensor((8, 8), "float32", Normal(specials=True))
FLAGS = Tensor((8, 8), "bool", schema.Booleans())
ROWS = Tensor((8,), "int64", schema.SortedIntegers(0, 8))
POSITIVE = tensor(8, 8, fill=UNIT)
MOVING: dict[str, Case] = {
    "clone": case("aten.clone.default", SPECIAL),
    "where": case("aten.where.self", FLAGS, SPECIAL, SPECIAL),
    "copy": case("aten.copy_.default", tensor(8, 8), SPECIAL),
    "copy, strided": case("aten.copy_.default", tensor(8, 8, strides=(1, 9), offset=3), SPECIAL),
    "put": case("aten.index_put_.default", SPECIAL, [ROWS], SPECIAL),
    "index copy": case("aten.index_copy_.default", SPECIAL, 0, ROWS, SPECIAL),
    "fill": case("aten.masked_fill_.Scalar", SPECIAL, FLAGS, 0.5),
    "fill with a negative zero": case("aten.masked_fill_.Scalar", tensor(8, 8), FLAGS, -0.0),
    "fill anew": case("aten.masked_fill.Scalar", SPECIAL, FLAGS, float("-inf")),
    "pad": case("aten.constant_pad_nd.default", SPECIAL, [1, 1], 0.25),
}
COMPUTING: dict[str, Case] = {
    "amax": case("aten.amax.default", SPECIAL),
    "amax of positive values": case("aten.amax.default", POSITIVE),
    "maximum of positive values": case("aten.maximum.default", POSITIVE, POSITIVE),
    "relu": case("aten.relu.default", SPECIAL),
    "relu of plain values": case("aten.relu.default", tensor(8, 8)),
    "relu in place": case("aten.relu_.default", tensor(8, 8)),
    "threshold": case("aten.threshold.default", tensor(8, 8), 0.0, 0.0),
    "floor of whole numbers": case("aten.floor.default", tensor(8, 8, fill=Integers(0, 4))),
    "add": case("aten.add_.Tensor", SPECIAL, SPECIAL),
    "put and add": case("aten.index_put_.default", SPECIAL, [ROWS], SPECIAL, True),
    "copy to another dtype": case("aten.copy_.default", tensor(8, 8, dtype="bfloat16"), SPECIAL),
}


def without_signs(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values == 0, 0.0, values) if values.is_floating_point() else values


@pytest.mark.parametrize("name", [*MOVING, *COMPUTING])
def test_moved_values_keep_the_sign_of_zero_and_computed_ones_need_not(name: str) -> None:
    wanted = MOVING.get(name) or COMPUTING[name]
    reference = Reference(wanted, CPU)
    told = []
    for seed in range(12):
        call = draw_call(wanted, seed, CPU)
        for with_bounds in (True, False):
            (expected,) = reference.expect_many([call], with_bounds=with_bounds)
            right = [output.native for output in expected.outputs], expected.inputs_after
            assert isinstance(compare_many([expected], *([part] for part in right)), Agreement)
            after = [without_signs(s) if p in reference.contract.mutated else s for p, s in enumerate(right[1])]
            outputs = [without_signs(output) for output in right[0]]
            told.append(isinstance(compare_many([expected], [outputs], [after]), Mismatch))
            if reference.contract.mutated:  # what is returned is right, what was written is not
                told.append(isinstance(compare_many([expected], [right[0]], [after]), Mismatch))
    assert any(told) == (name in MOVING)


def test_many_calls_at_once_keep_the_sign_of_zero_in_what_they_write() -> None:
    series = Series(Reference(MOVING["copy"], CPU), 8)
    series.draw(3)
    right = series._expected.tensors[ResultPosition("argument", 0)]
    after = [right, series.storages[1]]
    shaped = right.view(8, 8, 8)
    assert isinstance(series.compare([shaped], after), Agreement)
    lost = series.compare([shaped], [without_signs(right), series.storages[1]])
    assert isinstance(lost, Mismatch)
    assert lost.reason == "mutation"
    assert isinstance(series.compare([without_signs(shaped)], after), Mismatch)


def test_negative_zeros_of_a_product_are_right() -> None:
    assert isinstance(judge(case("aten.relu.default", tensor(40, 50)), lambda x: x * (x > 0)), Agreement)


def test_draws_that_come_again_are_noticed_in_any_order() -> None:
    device = torch.device("cpu")
    reference = Reference(Case("test", "aten.rand_like.default", (Tensor((64, 64), "float32", Normal()),)), device)
    pool = [torch.rand(64, 64) for _ in range(3)]
    fresh = [torch.rand(64, 64) for _ in range(6)]

    def judged(draws: list[torch.Tensor]) -> list[bool]:
        found = []
        for seed, draw in enumerate(draws):
            call = draw_call(reference.case, seed, device)
            storages = [tensor.storage for tensor in call.tensors]
            found.append(isinstance(compare_many([reference.expect(call)], [[draw]], [storages]), Mismatch))
        return found

    assert not any(judged(fresh))
    assert judged([*pool, pool[1].flip(0), pool[0].roll(7)])[-2:] == [True, True]
