"""Gradients and complex numbers on planted values: what is wrong is refused, and what a jump leaves open is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from judging.cases import plans_for
from torchstone.gradient_operators import Differentiated
from torchstone.judging import (
    Agreement,
    Mismatch,
    Reference,
    compare_many,
    draw_call,
    plant,
    planted_calls,
)
from torchstone.schema import (
    Argument,
    Booleans,
    Case,
    Integers,
    Normal,
    Scalar,
    Sequence,
    Tensor,
    gradient_operator,
    is_gradient,
)

CPU = torch.device("cpu")
Kernel = Callable[..., Any]


def normal(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype, Normal())


def dims(*numbers: int) -> Sequence:
    return Sequence(tuple(Scalar(number) for number in numbers))


def forward(operator: str, *args: Argument) -> Case:
    """Without variants: then every plan is tried on it."""
    return Case("tests", f"aten.{operator}", args, jitter=False)


def gradient(operator: str, cotangent: Tensor, *args: Argument) -> Case:
    return Case("tests", gradient_operator(f"aten.{operator}"), (Sequence((cotangent,)), *args), jitter=False)


def judged(case: Case, kernel: Kernel, seed: int) -> Agreement | Mismatch:
    """All planted calls of a case, and one that is not, as the judge compares them."""
    usual = Reference(case, CPU).expect(draw_call(case, seed, CPU))
    usual.values()
    calls = [usual, *planted_calls(usual, seed)]
    called = Differentiated(kernel) if is_gradient(case.operator) else kernel
    results = [called(*expected.call.args) for expected in calls]
    outputs = [
        [leaf.detach() for leaf in (result if isinstance(result, list | tuple) else [result])] for result in results
    ]
    return compare_many(calls, outputs, [[t.storage for t in expected.call.tensors] for expected in calls])


def with_backward(function: Kernel, backward: Kernel) -> Kernel:
    """A function with a gradient of its own: of the cotangent, the arguments and the result."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            result = function(*args)
            ctx.args, ctx.result = args, result
            return result

        @staticmethod
        def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
            found = backward(cotangent, ctx.result, *ctx.args)
            return (found, *[None] * (len(ctx.args) - 1))

    return lambda *args: Own.apply(*args)


def _norm(x: torch.Tensor, shape: Any, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt() * w + b


def _norm_in_one_pass(x: torch.Tensor, shape: Any, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) * (variance.clamp(min=0) + eps).rsqrt() * w + b


def _norm_by_deviation(x: torch.Tensor, shape: Any, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """The slope of the root at 0 is infinite."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    return centred / (deviation * deviation + eps).sqrt() * w + b


def _softmax(x: torch.Tensor, dim: int, half: bool) -> torch.Tensor:
    powers = (x - x.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


def _arcsine(z: torch.Tensor) -> torch.Tensor:
    """By its formula, where that leaves digits."""
    return torch.where(z.abs() < 100, -1j * (1j * z + (1 - z * z).sqrt()).log(), z.asin())


def _mean_of_all(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -x.log_softmax(1).gather(1, target.clamp(min=0)[:, None]).mean()


def _root_of_finite(squares: torch.Tensor) -> torch.Tensor:
    """As if they were kept in float16."""
    return torch.where(squares.half().isinf(), torch.inf, squares.sqrt()).half()


X = normal(16, 33)
Z = normal(16, 33, dtype="complex64")
H = normal(24, 48, dtype="float16")
LAYER_NORM = gradient("layer_norm.default", X, X, dims(33), normal(33), normal(33), Scalar(1e-5))
CROSS_ENTROPY = gradient(
    "cross_entropy_loss.default", normal(), normal(64, 10), Tensor((64,), "int64", Integers(0, 10))
)
CUBE = gradient("pow.Tensor_Scalar", X, X, Scalar(3))
PRODUCT = gradient("prod.dim_int", normal(24), normal(24, 6), Scalar(1))
HARDTANH = gradient("hardtanh.default", X, X, Scalar(-1.0), Scalar(1.0))
MAXIMUM = gradient("amax.default", normal(16), X, dims(1))
SOFTMAX = gradient("_softmax.default", X, X, Scalar(1), Scalar(False))
NORM = gradient("norm.ScalarOpt_dim", normal(16), X, Scalar(2), dims(1))

WRONG: dict[str, tuple[Case, Kernel]] = {
    "no index is ignored": (CROSS_ENTROPY, _mean_of_all),
    "a variance in one pass": (LAYER_NORM, _norm_in_one_pass),
    "a flat row has no gradient": (LAYER_NORM, _norm_by_deviation),
    "a cube's slope at 0": (CUBE, with_backward(torch.pow, lambda g, y, x, n: g * n * y / x)),
    "a product's slope at 0": (
        PRODUCT,
        with_backward(torch.prod, lambda g, y, x, d: g[:, None] * y[:, None] / x),
    ),
    "a mask has a gradient of NaN": (
        SOFTMAX,
        with_backward(_softmax, lambda g, y, x, d, h: y * g - y * (y * g).sum(d, keepdim=True) + 0 * x),
    ),
    "the sign of 0": (forward("sgn.default", Z), lambda z: z / z.abs()),
    "a tangent by exponentials": (
        forward("tanh.default", Z),
        lambda z: (z.exp() - (-z).exp()) / (z.exp() + (-z).exp()),
    ),
    "no number is real": (forward("isreal.default", Z), lambda z: torch.zeros(z.shape, dtype=torch.bool)),
    "squares in float16": (
        forward("hypot.default", H, H),
        lambda a, b: _root_of_finite(a.float().square() + b.float().square()),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_where_nothing_jumps_is_refused(name: str) -> None:
    case, kernel = WRONG[name]
    found = [judged(case, kernel, seed) for seed in range(4)]
    assert any(isinstance(one, Mismatch) for one in found)


HONEST: dict[str, tuple[Case, Kernel]] = {
    "relu, 0 at 0": (gradient("relu.default", X, X), lambda x: x * (x > 0)),
    "relu, 1 at 0": (gradient("relu.default", X, X), lambda x: torch.where(x >= 0, x, 0.0)),
    "relu, a half at 0": (gradient("relu.default", X, X), lambda x: torch.maximum(x, torch.zeros_like(x))),
    "abs": (gradient("abs.default", X, X), lambda x: torch.where(x >= 0, x, -x)),
    "abs as a maximum": (gradient("abs.default", X, X), lambda x: torch.maximum(x, -x)),
    "hardtanh, ends excluded": (HARDTANH, lambda x, a, b: torch.where(x >= b, b, torch.where(x <= a, a, x))),
    "hardtanh, ends included": (HARDTANH, lambda x, a, b: torch.where(x > b, b, torch.where(x < a, a, x))),
    "the first maximum": (MAXIMUM, lambda x, d: x.max(d[0]).values),
    "the last maximum": (MAXIMUM, lambda x, d: x.sort(stable=True, dim=d[0]).values[:, -1]),
    "the larger of two": (gradient("maximum.default", X, X, normal(33)), lambda x, y: torch.where(x > y, x, y)),
    "hardswish": (gradient("hardswish.default", X, X), lambda x: x * functional.relu6(x + 3) / 6),
    "a norm without a slope at 0": (NORM, lambda x, p, d: x.square().sum(d[0]).sqrt()),
    "a layer norm": (LAYER_NORM, _norm),
    "a cross entropy": (CROSS_ENTROPY, lambda x, t: functional.nll_loss(x.log_softmax(1), t)),
    "a cube": (CUBE, lambda x, n: x * x * x),
    "a product": (PRODUCT, lambda x, d: x[:, 0] * x[:, 1] * x[:, 2] * x[:, 3] * x[:, 4] * x[:, 5]),
    "a softmax": (SOFTMAX, _softmax),
    "a choice by factors": (
        gradient("where.self", X, Tensor((16, 33), "bool", Booleans()), X, X),
        lambda c, x, y: c * x + (~c) * y,
    ),
    "an angle at the origin": (
        gradient("atan2.default", X, X, X),
        lambda y, x: torch.atan2(y, x),
    ),
    "an arcsine on its cuts": (forward("asin.default", Z), _arcsine),
    "a root by its angle": (forward("sqrt.default", Z), lambda z: torch.polar(z.abs().sqrt(), z.angle() / 2)),
    "a power by logarithms": (forward("pow.Tensor_Tensor", Z, Z), lambda a, b: (b * a.log()).exp()),
    "the sign of a number": (forward("sgn.default", Z), lambda z: torch.where(z == 0, 0, z / z.abs())),
    "a quotient": (
        forward("div.Tensor", Z, Z),
        lambda a, b: a * b.conj() / (b.real.square() + b.imag.square()),
    ),
    "a length in float16": (
        forward("hypot.default", H, H),
        lambda a, b: (a.float().square() + b.float().square()).sqrt().half(),
    ),
    "gelu in float16": (forward("gelu.default", H), lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071))),
    "lerp in float16": (forward("lerp.Scalar", H, H, Scalar(0.3)), lambda a, b, w: a + w * (b - a)),
    "a sum in float16": (forward("sum.dim_IntList", H, dims(1)), lambda x, d: x.float().cumsum(1)[:, -1].half()),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_a_jump_leaves_open_is_not_refused(name: str) -> None:
    case, kernel = HONEST[name]
    for seed in range(5):
        found = judged(case, kernel, seed)
        assert isinstance(found, Agreement), found


def test_equal_values_among_drawn_ones_leave_a_gradient_open() -> None:
    first = Differentiated(lambda x, d: x.max(d[0]).values)
    drawn = [Reference(MAXIMUM, CPU).expect(draw_call(MAXIMUM, seed, CPU)) for seed in range(4)]
    for expected in drawn:
        expected.call.tensors[1].view[3, :2] = 9.0
    again = [expected.batch.reference.expect(expected.call) for expected in drawn]
    outputs = [first(*expected.call.args) for expected in again]
    assert isinstance(compare_many(again, outputs, [[t.storage for t in e.call.tensors] for e in again]), Agreement)


def test_plans_of_a_gradient_are_those_of_its_operator_and_leave_the_cotangents_alone() -> None:
    of_operator = ["numbers", "hundreds", "magnitudes", "moved", "flat"]
    assert plans_for(LAYER_NORM, once=False) == ["unused", "loud", *of_operator]
    assert "marked" in plans_for(CROSS_ENTROPY, once=False)
    for plan in ("numbers", "magnitudes", "moved", "flat"):
        before, after = draw_call(LAYER_NORM, 3, CPU), plant(draw_call(LAYER_NORM, 3, CPU), plan)
        assert torch.equal(before.tensors[0].storage, after.tensors[0].storage)
        assert not torch.equal(before.tensors[1].storage, after.tensors[1].storage)
    asked = Case("tests", LAYER_NORM.operator, LAYER_NORM.args, {"asking": dims(0)}, jitter=False)
    assert plans_for(asked, once=False) == plans_for(LAYER_NORM, once=False)


def test_a_wrong_shape_is_no_matter_of_smoothness() -> None:
    wrong = with_backward(torch.relu, lambda g, y, x: g * (y > 0))
    case = gradient("relu.default", X, X)
    usual = Reference(case, CPU).expect(draw_call(case, 0, CPU))
    outputs = Differentiated(wrong)(*usual.call.args)
    outputs[1] = outputs[1][:-1]
    assert isinstance(compare_many([usual], [outputs], [[t.storage for t in usual.call.tensors]]), Mismatch)
