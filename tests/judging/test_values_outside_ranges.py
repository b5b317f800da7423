"""Values outside of a stated range, NaN that stands for nothing, and masked blocks: where torch's answer is finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging.cases import plans_for
from torchstone.judging import (
    Agreement,
    Mismatch,
    Reference,
    compare_many,
    draw_call,
    draw_calls,
    plant,
    planted_calls,
)
from torchstone.schema import Argument, Booleans, Case, Fill, Integers, Normal, Scalar, Sequence, Tensor, Uniform

CPU = torch.device("cpu")


def case(operator: str, *args: Argument) -> Case:
    """Without variants: then every plan is tried on it."""
    return Case("tests", f"aten.{operator}", args, jitter=False)


def real(*shape: int, fill: Fill | None = None, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype, fill or Normal())


def whole(low: int, high: int, dtype: str = "int64") -> Tensor:
    return Tensor((24, 33), dtype, Integers(low, high))


POSITIVE, UNIT, INSIDE = Uniform(0.125, 8.0), Uniform(0.0, 1.0), Uniform(0.0078125, 0.9921875)
A = real(24, 33)
B = real(24, 33, fill=POSITIVE)
DIV = case("div.Tensor", A, B)
POW = case("pow.Tensor_Tensor", B, A)
XLOGY = case("xlogy.Tensor", A, B)
BCE = case("binary_cross_entropy.default", real(24, 33, fill=INSIDE), real(24, 33, fill=UNIT))
KL = case("kl_div.default", real(24, 33, fill=Uniform(-8.0, 0.0)), real(24, 33, fill=UNIT))
REMAINDER = case("remainder.Tensor", whole(-100, 100), whole(1, 100))
SQRT = case("sqrt.default", B)
LOGIT = case("logit.default", real(24, 33, fill=INSIDE), Scalar(0.1))
GRID = case(
    "grid_sampler_2d.default",
    *(real(2, 3, 16, 20), real(2, 9, 11, 2, fill=Uniform(-1.0, 1.0)), Scalar(0), Scalar(0), Scalar(False)),
)
BYTES = case("add.Tensor", whole(0, 100, "uint8"), whole(0, 100, "uint8"))
FMAX = case("fmax.default", A, real(33))
LOSS = case("cross_entropy_loss.default", real(64, 10), Tensor((64,), "int64", Integers(0, 10)))
KEYS = (real(2, 2, 9, 16), real(2, 2, 70, 16), real(2, 2, 70, 16))
SDPA = case("scaled_dot_product_attention.default", *KEYS, real(2, 1, 9, 70))
SDPA_BOOL = case("scaled_dot_product_attention.default", *KEYS, Tensor((2, 1, 9, 70), "bool", Booleans(0.8)))
SOFTMAX = case("_softmax.default", real(24, 65), Scalar(-1), Scalar(False))


def judged(wanted: Case, kernel: Callable[..., Any], seed: int = 0) -> Agreement | Mismatch:
    """All planted calls of a case, as the judge compares them."""
    usual = Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU))
    usual.values()
    calls = planted_calls(usual, seed)
    outputs = [[kernel(*expected.call.args)] for expected in calls]
    return compare_many(calls, outputs, [[t.storage for t in expected.call.tensors] for expected in calls])


def _bce(p: torch.Tensor, t: torch.Tensor, least: float = -math.inf) -> torch.Tensor:
    return -(t * p.log().clamp_min(least) + (1 - t) * (1 - p).log().clamp_min(least)).mean()


def _online(s: torch.Tensor, v: torch.Tensor, *, careful: bool) -> torch.Tensor:
    """Softmax of scores times values, over blocks of 32 keys."""
    most = torch.full((*s.shape[:-1], 1), -torch.inf)
    total, sums = torch.zeros_like(most), torch.zeros((*s.shape[:-1], v.shape[-1]))
    for begin in range(0, s.shape[-1], 32):
        scores, values = s[..., begin : begin + 32], v[..., begin : begin + 32, :]
        new = torch.maximum(most, scores.amax(-1, keepdim=True))
        safe = torch.where(new == -torch.inf, 0.0, new) if careful else new
        weights, kept = torch.exp(scores - safe), torch.exp(most - safe)
        total, sums, most = total * kept + weights.sum(-1, keepdim=True), sums * kept + weights @ values, new
    return sums / total


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, *, careful: bool) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _online(scores.masked_fill(~m, -torch.inf) if m.dtype is torch.bool else scores + m, v, careful=careful)


def _loss_by_matrix(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    kept = target != -100
    chosen = torch.nn.functional.one_hot(target.clamp_min(0), x.shape[1]) * kept[:, None]
    return -(x.log_softmax(1) * chosen).sum() / kept.sum()


def _loss_by_target(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    kept = target != -100
    losses = x.logsumexp(1) - x.gather(1, target.clamp_min(0)[:, None])[:, 0]
    return torch.where(kept, losses, 0.0).sum() / kept.sum()


def _softmax_by_blocks(x: torch.Tensor, *, careful: bool) -> torch.Tensor:
    most, total = torch.full((len(x), 1), -torch.inf), torch.zeros((len(x), 1))
    for part in x.split(16, 1):
        new = torch.maximum(most, part.amax(1, keepdim=True))
        safe = torch.where(new == -torch.inf, 0.0, new) if careful else new
        total = total * torch.exp(most - safe) + torch.exp(part - safe).sum(1, keepdim=True)
        most = new
    return torch.exp(x - most) / total


WRONG: dict[str, tuple[Case, Callable[..., Any]]] = {
    "no negative divisors": (DIV, lambda a, b: torch.where(b < 0, torch.nan, a / b)),
    "a quotient by logarithms": (DIV, lambda a, b: a * torch.exp(-torch.log(b))),
    "powers by logarithms": (POW, lambda x, y: torch.exp2(y.double() * torch.log2(x.double())).float()),
    "0 log 0": (XLOGY, lambda x, y: x * y.log()),
    "a sure prediction": (BCE, _bce),
    "a target of 0": (KL, lambda x, t: (t * (t.log() - x)).mean()),
    "a remainder as in C": (
        REMAINDER,
        lambda a, b: torch.where(torch.fmod(a, b) < 0, torch.fmod(a, b) + b, torch.fmod(a, b)),
    ),
    "a root by its inverse": (SQRT, lambda x: x * torch.rsqrt(x)),
    "a logit without its eps": (LOGIT, lambda x, eps: torch.log(x.clamp_min(eps) / (1 - x.clamp_min(eps)))),
    "samples at the border": (GRID, lambda x, g, m, p, a: torch.grid_sampler_2d(x, g.clamp(-1, 1), m, p, a)),
    "bytes that saturate": (BYTES, lambda a, b: (a.int() + b.int()).clamp_max(255).byte()),
    "NaN wins": (FMAX, torch.maximum),
    "a masked class that is not the target": (LOSS, _loss_by_matrix),
    "a masked block": (SDPA, lambda q, k, v, m: _attention(q, k, v, m, careful=False)),
    "a masked block by booleans": (SDPA_BOOL, lambda q, k, v, m: _attention(q, k, v, m, careful=False)),
    "a masked block of a softmax": (SOFTMAX, lambda x, d, _: _softmax_by_blocks(x, careful=False)),
    "a sign by comparison": (case("signbit.default", A), lambda x: x < 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_where_torch_is_finite_is_refused(name: str) -> None:
    wanted, kernel = WRONG[name]
    found = [isinstance(judged(wanted, kernel, seed), Mismatch) for seed in range(5)]
    assert all(found) if wanted is not LOSS else any(found), "a loss is finite if no target is masked"


def _remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = torch.fmod(a, b)
    return torch.where((found != 0) & ((found < 0) != (b < 0)), found + b, found)


HONEST: dict[str, tuple[Case, Callable[..., Any]]] = {
    "a quotient": (DIV, lambda a, b: a * b.reciprocal()),
    "a quotient of 16 bits": (
        case("div.Tensor", real(24, 33, dtype="float16"), real(24, 33, fill=POSITIVE, dtype="float16")),
        lambda a, b: (a.float() * b.float().reciprocal()).half(),
    ),
    "a floating remainder": (case("remainder.Tensor", A, B), _remainder),
    "a floating floor": (case("floor_divide.default", A, B), lambda a, b: torch.floor(a / b)),
    "powers with signs": (
        POW,
        lambda x, y: torch.where(
            y == 0,
            1.0,
            torch.exp2(y * torch.log2(x.abs()))
            * torch.where(x < 0, torch.where(y == y.floor(), 1.0 - 2.0 * (y % 2), torch.nan), 1.0),
        ),
    ),
    "xlogy": (XLOGY, lambda x, y: torch.where(x == 0, torch.where(y.isnan(), y, 0.0), x * y.log())),
    "a clamped entropy": (BCE, lambda p, t: _bce(p, t, -100.0)),
    "a divergence": (KL, lambda x, t: torch.where(t > 0, t * (t.log() - x), 0.0).mean()),
    "a remainder": (REMAINDER, _remainder),
    "a root by a power": (SQRT, lambda x: x**0.5),
    "a logarithm by another": (case("log.default", B), lambda x: torch.log2(x) * math.log(2)),
    "an inverse root": (case("rsqrt.default", B), lambda x: 1 / x.sqrt()),
    "acosh": (
        case("acosh.default", real(24, 33, fill=Uniform(1.015625, 8.0))),
        lambda x: torch.log(x + torch.sqrt(x - 1) * torch.sqrt(x + 1)),
    ),
    "atanh": (
        case("atanh.default", real(24, 33, fill=Uniform(-0.984375, 0.984375))),
        lambda x: 0.5 * torch.log((1 + x) / (1 - x)),
    ),
    "asin": (
        case("asin.default", real(24, 33, fill=Uniform(-0.984375, 0.984375))),
        lambda x: torch.atan2(x, torch.sqrt((1 - x) * (1 + x))),
    ),
    "log1p": (
        case("log1p.default", real(24, 33, fill=Uniform(-0.875, 8.0))),
        lambda x: torch.log(1.0 + x.double()).to(x.dtype),
    ),
    "lgamma of positive arguments": (case("lgamma.default", B), lambda x: torch.where(x > 0, x.lgamma(), torch.nan)),
    "digamma of positive arguments": (
        case("digamma.default", B),
        lambda x: torch.where(x > 0, x.digamma(), torch.nan),
    ),
    "a logit": (LOGIT, lambda x, eps: torch.log(x.clamp(eps, 1 - eps) / (1 - x.clamp(eps, 1 - eps)))),
    "bytes": (BYTES, lambda a, b: (a.int() + b.int()).remainder(256).byte()),
    "a product": (
        case("prod.dim_int", real(24, 8, fill=Uniform(0.75, 1.25)), Scalar(1)),
        lambda x, d: x.flip(1).cumprod(1)[:, -1],
    ),
    "fmax": (FMAX, lambda a, b: torch.where(a.isnan() | (b > a), b, a)),
    "maximum as people write it": (case("maximum.default", A, A), lambda a, b: torch.where(a > b, a, b)),
    "a relu": (case("relu.default", A), lambda x: x * (x > 0)),
    "a loss by its target": (LOSS, _loss_by_target),
    "attention": (SDPA, lambda q, k, v, m: (q @ k.transpose(-1, -2) / 4 + m).softmax(-1) @ v),
    "attention by blocks": (SDPA, lambda q, k, v, m: _attention(q, k, v, m, careful=True)),
    "attention with booleans": (
        SDPA_BOOL,
        lambda q, k, v, m: (q @ k.transpose(-1, -2) / 4).masked_fill(~m, -torch.inf).softmax(-1).nan_to_num() @ v,
    ),
    "a softmax by blocks": (SOFTMAX, lambda x, d, _: _softmax_by_blocks(x, careful=True)),
    "a sign by its bit": (case("signbit.default", A), lambda x: x.view(torch.int32) < 0),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_agree_beyond_a_stated_range(name: str) -> None:
    wanted, kernel = HONEST[name]
    for seed in range(8):
        found = judged(wanted, kernel, seed)
        assert isinstance(found, Agreement), found


def test_indices_counts_and_saved_results_keep_their_range() -> None:
    index = Tensor((24, 3), "int64", Integers(0, 33))
    assert "beyond" not in plans_for(case("gather.default", A, Scalar(1), index), once=False)
    assert "beyond" not in plans_for(case("bitwise_left_shift.Tensor", whole(0, 9), whole(0, 9)), once=True)
    assert plans_for(case("tanh_backward.default", A, real(24, 33, fill=UNIT)), once=False)[-1] != "beyond"
    assert [plan for plan in plans_for(case("lgamma.default", B), once=False) if plan in ("ends", "beyond")] == ["ends"]


@given(st.integers(0, 2**63 - 1), st.sampled_from(["int8", "int16", "int32", "int64", "uint8"]))
def test_no_divisor_ends_the_process(seed: int, dtype: str) -> None:
    wanted = case("floor_divide.default", whole(0, 100, dtype), whole(1, 100, dtype))
    divisors = plant(draw_call(wanted, seed, CPU), "beyond").args[1].long()
    assert not bool(((divisors == 0) | (divisors == -1)).any())
    assert bool(((divisors > 100) | (divisors < 0)).any())


@given(st.integers(0, 2**63 - 1), st.integers(1, 3))
def test_all_of_it_is_a_function_of_the_seed(seed: int, count: int) -> None:
    for wanted, plan in ((DIV, "beyond"), (BCE, "ends"), (BYTES, "beyond"), (FMAX, "missing"), (SDPA, "padded")):
        first, again = (plant(draw_calls(wanted, seed, count, CPU)[-1], plan) for _ in range(2))
        for a, b in zip(first.tensors, again.tensors, strict=True):
            assert torch.equal(a.storage.view(torch.uint8), b.storage.view(torch.uint8))


def test_no_row_of_a_mask_is_masked_as_a_whole() -> None:
    for seed in range(8):
        mask = plant(draw_call(SDPA, seed, CPU), "padded").args[3]
        assert bool((mask == -torch.inf)[..., 0].any())
        assert not bool((mask == -torch.inf).all(-1).any())


def test_dimensions_of_a_list_are_no_masks() -> None:
    wanted = case("index_put.default", A, Sequence((Tensor((24, 33), "bool", Booleans()),)), real(1))
    assert "padded" not in plans_for(wanted, once=False)
