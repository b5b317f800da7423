"""Operators of several kinds, honest ways to compute them otherwise, and cheap ways to pretend.

Used by the tests, and by ``judging.false_alarms`` for rates over many judgements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchstone import operators
from torchstone.judging import DrawnCall
from torchstone.judging.plans import PLANS, CaseFacts
from torchstone.schema import Argument, Case, Fill, Normal, Scalar, Sequence, Tensor, Uniform

Kernel = Callable[..., torch.Tensor]
Reduce = Callable[[torch.Tensor], torch.Tensor]
"""Adds up the last dimension."""


def tensor(*shape: int, dtype: str = "float32", fill: Fill | None = None, **layout: Any) -> Tensor:
    return Tensor(shape, dtype, fill or Normal(), **layout)


def case(operator: str, *args: Any, **kwargs: Any) -> Case:
    """A case with plain Python values where recipes are not given."""
    named = {name: _argument(value) for name, value in kwargs.items()}
    return Case("test", operator, tuple(_argument(value) for value in args), named)


def _argument(value: Any) -> Argument:
    if isinstance(value, list):
        return Sequence(tuple(_argument(item) for item in value))
    return Scalar(value) if value is None or isinstance(value, bool | int | float | str) else value


def plans_for(case: Case, *, once: bool) -> list[str]:
    """Names of the plans that apply to a case. ``once``: its results tell positions."""
    found = PLANS.applying(CaseFacts(case, tells_positions=once))
    return [plan.recorded_name for plan in found if not plan.makes_own_call]


def storages_of(call: DrawnCall) -> list[torch.Tensor]:
    """The storages after a call that changed nothing."""
    return [drawn.storage for drawn in call.tensors]


def wide(values: torch.Tensor) -> torch.Tensor:
    """What an honest kernel computes in."""
    return values if values.dtype == torch.float64 else values.float()


# Ways to add up.


def left_to_right(values: torch.Tensor) -> torch.Tensor:
    total = values[..., 0].clone()
    for position in range(1, values.shape[-1]):
        total += values[..., position]
    return total


def pairwise(values: torch.Tensor) -> torch.Tensor:
    while values.shape[-1] > 1:
        values = torch.nn.functional.pad(values, (0, values.shape[-1] % 2))
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]


def blocked(values: torch.Tensor) -> torch.Tensor:
    blocks = [left_to_right(values[..., i : i + 64]) for i in range(0, values.shape[-1], 64)]
    return left_to_right(torch.stack(blocks, dim=-1))


ORDERS: dict[str, Reduce] = {"left to right": left_to_right, "pairwise": pairwise, "blocked": blocked}


# Operators by the way they add up.


def _sum(add: Reduce) -> Kernel:
    return lambda x, *_: add(wide(x)).to(x.dtype)


def _matmul(add: Reduce) -> Kernel:
    return lambda a, b: add(wide(a)[:, None, :] * wide(b).T[None]).to(a.dtype)


def _softmax(add: Reduce) -> Kernel:
    def kernel(x: torch.Tensor, *_: Any) -> torch.Tensor:
        shifted = (wide(x) - wide(x).amax(-1, keepdim=True)).exp()
        return (shifted / add(shifted).unsqueeze(-1)).to(x.dtype)

    return kernel


def _layer_norm(add: Reduce) -> Kernel:
    def kernel(x: torch.Tensor, _: Any, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        values, count = wide(x), x.shape[-1]
        centred = values - add(values).unsqueeze(-1) / count
        variance = add(centred * centred).unsqueeze(-1) / count
        return (centred * (variance + eps).rsqrt() * wide(weight) + wide(bias)).to(x.dtype)

    return kernel


def _layer_norm_one_pass(x: torch.Tensor, _: Any, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Around the first value of each row: without, what is left where the mean is large is noise."""
    values = wide(x) - wide(x[..., :1])
    mean = values.mean(-1, keepdim=True)
    variance = (values * values).mean(-1, keepdim=True) - mean * mean
    return ((values - mean) * (variance + eps).rsqrt() * wide(weight) + wide(bias)).to(x.dtype)


def _gelu_by_erf(x: torch.Tensor) -> torch.Tensor:
    return (wide(x) * 0.5 * (1.0 + torch.erf(wide(x) / math.sqrt(2.0)))).to(x.dtype)


def _gelu_by_erfc(x: torch.Tensor) -> torch.Tensor:
    return (wide(x) * 0.5 * torch.erfc(-wide(x) / math.sqrt(2.0))).to(x.dtype)


@dataclass(frozen=True)
class Kind:
    """An operator, its case for a size and a dtype, and honest other ways to compute it."""

    name: str
    case: Callable[[int, str], Case]
    honest: dict[str, Kernel]
    sizes: tuple[int, ...]
    adds: bool = False
    """Reductions and contractions: a lower precision must be told apart."""

    @property
    def operator(self) -> str:
        return self.case(1, "float32").operator

    def native(self, *args: Any) -> Any:
        return operators.resolve(self.operator)(*args)

    def in_float64(self, *args: Any) -> torch.Tensor:
        dtype = args[0].dtype
        return self.native(*(a.double() if isinstance(a, torch.Tensor) else a for a in args)).to(dtype)


def _by_order(kernel: Callable[[Reduce], Kernel]) -> dict[str, Kernel]:
    return {name: kernel(add) for name, add in ORDERS.items()}


KINDS = (
    Kind(
        "sum of rows",
        lambda n, t: case("aten.sum.dim_IntList", tensor(16, n, dtype=t), [1]),
        _by_order(_sum),
        (7, 64, 1000),
        adds=True,
    ),
    Kind(
        "sum of all",
        lambda n, t: case("aten.sum.default", tensor(n, dtype=t)),
        _by_order(_sum),
        (3, 64, 1000),
    ),
    Kind(
        "sum of positive rows",
        lambda n, t: case("aten.sum.dim_IntList", tensor(16, n, dtype=t, fill=Uniform(0.0, 1.0)), [1]),
        _by_order(_sum),
        (64, 1000),
    ),
    Kind(
        "matmul",
        lambda n, t: case("aten.mm.default", tensor(16, n, dtype=t), tensor(n, 16, dtype=t)),
        _by_order(_matmul),
        (1, 16, 500),
        adds=True,
    ),
    Kind(
        "softmax",
        lambda n, t: case("aten._softmax.default", tensor(8, n, dtype=t), -1, False),
        _by_order(_softmax),
        (5, 64, 500),
        adds=True,
    ),
    Kind(
        "layer norm",
        lambda n, t: case(
            "aten.layer_norm.default", tensor(8, n, dtype=t), [n], tensor(n, dtype=t), tensor(n, dtype=t), 1e-5
        ),
        _by_order(_layer_norm) | {"one pass": _layer_norm_one_pass},
        (5, 64, 500),
        adds=True,
    ),
    Kind(
        "gelu",
        lambda n, t: case("aten.gelu.default", tensor(n, dtype=t)),
        {"erf": _gelu_by_erf, "erfc": _gelu_by_erfc},
        (33, 1000),
    ),
    Kind(
        "exp",
        lambda n, t: case("aten.exp.default", tensor(n, dtype=t)),
        {"exp2": lambda x: torch.exp2(wide(x) * math.log2(math.e)).to(x.dtype)},
        (33, 1000),
    ),
    Kind(
        "multiply and add",
        lambda n, t: case("aten.addcmul.default", tensor(n, dtype=t), tensor(n, dtype=t), tensor(n, dtype=t)),
        {"rounded between": lambda a, b, c: a + b * c},
        (33, 1000),
    ),
    Kind(
        "silu",
        lambda n, t: case("aten.silu.default", tensor(n, dtype=t)),
        {"rounded between": lambda x: x * torch.sigmoid(x), "division": lambda x: x / (1 + torch.exp(-x))},
        (33, 1000),
    ),
)


# Lower precision behind a float32 face.


def _with_inputs(change: Callable[[torch.Tensor], torch.Tensor], kind: Kind) -> Kernel:
    return lambda *args: kind.native(*(change(a) if isinstance(a, torch.Tensor) else a for a in args))


def _tf32(values: torch.Tensor) -> torch.Tensor:
    return ((values.view(torch.int32) + 0x1000) >> 13 << 13).view(torch.float32)


def lower_precision(kind: Kind) -> dict[str, Kernel]:
    """The kind, in float32, computed from coarser inputs or in bfloat16 throughout."""
    return {
        "tf32 inputs": _with_inputs(_tf32, kind),
        "truncated inputs": _with_inputs(lambda v: (v.view(torch.int32) >> 13 << 13).view(torch.float32), kind),
        "bfloat16 inputs": _with_inputs(lambda v: v.bfloat16().float(), kind),
        "bfloat16 throughout": lambda *args: _with_inputs(lambda v: v.bfloat16(), kind)(*args).float(),
    }


# Cheap ways to pretend. Each gets the right answer and the call, and gives what is handed in instead.

Adversary = Callable[[torch.Tensor, DrawnCall], torch.Tensor]


def _without_tail(right: torch.Tensor, _: DrawnCall) -> torch.Tensor:
    left_out = right.clone().reshape(-1)
    left_out[-max(1, right.numel() // 64) :] = 0
    return left_out.reshape(right.shape)


def _copy_of_input(right: torch.Tensor, call: DrawnCall) -> torch.Tensor:
    source = call.tensors[0].view.reshape(-1).to(right.dtype)
    return source.repeat(-(-right.numel() // source.numel()))[: right.numel()].reshape(right.shape)


ADVERSARIES: dict[str, Adversary] = {
    "zeros": lambda right, _: torch.zeros_like(right),
    "ones": lambda right, _: torch.ones_like(right),
    "mean": lambda right, _: right.double().mean().to(right.dtype).expand_as(right),
    "copy of an input": _copy_of_input,
    "skipped tail": _without_tail,
}
