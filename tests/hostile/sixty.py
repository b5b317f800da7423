"""A suite of sixty operators with one case each, installed as a plugin: what the hostile run is made of."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.schema import Case, Integers, Normal, Scalar, Sequence, Tensor, Uniform
from torchstone.suites import CaseQuery, selects

_FLOAT = Tensor((33, 65), "float32", Normal())
_POSITIVE = Tensor((33, 65), "float32", Uniform(0.1, 4.0))
_INTEGER = Tensor((33, 65), "int32", Integers(-1000, 1000))
_SQUARE = Tensor((48, 48), "float32", Normal())

_UNARY = [
    "relu",
    "abs",
    "neg",
    "exp",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "sign",
    "square",
    "reciprocal",
    "erf",
    "erfc",
    "expm1",
    "sinh",
    "cosh",
    "asinh",
    "atan",
    "trunc",
    "silu",
    "gelu",
    "hardswish",
    "softplus",
    "elu",
    "hardtanh",
]
_POSITIVE_UNARY = ["sqrt", "rsqrt", "log", "log2", "log10", "log1p"]
_BINARY = [
    "add.Tensor",
    "sub.Tensor",
    "mul.Tensor",
    "maximum",
    "minimum",
    "atan2",
    "fmax",
    "fmin",
    "hypot",
    "logaddexp",
    "gt.Tensor",
    "lt.Tensor",
]
_INTEGER_BINARY = ["bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "eq.Tensor", "ne.Tensor"]
_REDUCTIONS = ["sum.dim_IntList", "mean.dim", "amax", "amin"]


def sixty_cases() -> list[Case]:
    """One case per operator."""
    table = [(name, (_FLOAT,)) for name in _UNARY]
    table += [(name, (_POSITIVE,)) for name in _POSITIVE_UNARY]
    table += [(name, (_FLOAT, _FLOAT)) for name in _BINARY]
    table += [(name, (_INTEGER, _INTEGER)) for name in _INTEGER_BINARY]
    table += [(name, (_FLOAT, Sequence((Scalar(1),)))) for name in _REDUCTIONS]
    table += [("mm", (_SQUARE, _SQUARE)), ("div.Tensor", (_FLOAT, _POSITIVE)), ("t", (_SQUARE,))]
    table += [("clone", (_FLOAT,)), ("ge.Tensor", (_FLOAT, _FLOAT))]
    return [Case("sixty", f"aten.{name}" if "." in name else f"aten.{name}.default", args) for name, args in table]


class SixtySuite:
    """What the entry point of the plugin names."""

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        return (case for case in sixty_cases() if selects(query, case.operator))
