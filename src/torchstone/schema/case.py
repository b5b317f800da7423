"""A case: an operator and recipes for its arguments. It has no tensors; a judge creates them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from torchstone.schema.codec import content_key
from torchstone.schema.implementation import SourceFiles


class Normal(msgspec.Struct, frozen=True, tag="normal"):
    """Floating-point (or complex) values, most of them normally distributed, with runs, ramps, scales and tails."""

    mean: float = 0.0
    std: float = 1.0
    specials: bool = False
    """The values include infinities, NaN, both zeros, subnormals and the largest numbers. Only for operators that
    define their results for these."""


class Uniform(msgspec.Struct, frozen=True, tag="uniform"):
    """Values in [low, high), most of them uniform. For operators whose domain is bounded (log, sqrt, probabilities)."""

    low: float
    high: float


class Integers(msgspec.Struct, frozen=True, tag="integers"):
    """Integers in [low, high), most of them uniform. Valid indices are ``Integers(0, size)``."""

    low: int
    high: int


class SortedIntegers(msgspec.Struct, frozen=True, tag="sorted_integers"):
    """Integers in [low, high) that strictly increase along the last dimension: offsets, boundaries, unique indices."""

    low: int
    high: int


class Simplex(msgspec.Struct, frozen=True, tag="simplex"):
    """Probabilities: not negative, each row along the last dimension adds up to 1."""


class PositiveDefinite(msgspec.Struct, frozen=True, tag="positive_definite"):
    """Symmetric (Hermitian) matrices in the last two dimensions with eigenvalues of at least ``least``."""

    least: float = 0.5


class Booleans(msgspec.Struct, frozen=True, tag="booleans"):
    """True with probability ``p_true``."""

    p_true: float = 0.5


class Given(msgspec.Struct, frozen=True, tag="given"):
    """Exactly these values in row-major order. For arguments that describe other arguments (lengths, offsets, pivots),
    where another value would make the call invalid."""

    values: tuple[bool | int | float, ...]


class WindowPositions(msgspec.Struct, frozen=True, tag="window_positions"):
    """Indices that max pooling returns: flat positions in the input plane, each in the window of its output element.
    The last two dimensions are those of the output plane."""

    plane: tuple[int, int]
    """Height and width of the pooling's input."""
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


class AsMade(msgspec.Struct, frozen=True, tag="as_made"):
    """A weight with the values that the problem's model gives it. Buffers such as masks and tables are part of the
    model: with other values it would be another model."""

    weight: int
    """Index among the model's weights."""


Fill = (
    Normal
    | Uniform
    | Integers
    | Booleans
    | SortedIntegers
    | Simplex
    | PositiveDefinite
    | Given
    | WindowPositions
    | AsMade
)


class Tensor(msgspec.Struct, frozen=True, tag="tensor", omit_defaults=True):
    """A recipe for a tensor argument."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix: ``float32``, ``bfloat16``, ``int64``, ``bool``."""
    fill: Fill
    """How the values are drawn. New values are drawn for every call."""
    strides: tuple[int, ...] | None = None
    """Strides in elements; None: contiguous. Zero (expanded) is allowed for inputs that are only read."""
    offset: int = 0
    """Storage offset in elements."""


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """A finite number, flag, string or None that is passed unchanged. JSON has no infinity: see NonFinite."""

    value: bool | int | float | str | None


class NonFinite(msgspec.Struct, frozen=True, tag="nonfinite"):
    """A scalar infinity or NaN."""

    value: Literal["inf", "-inf", "nan"]


class Complex(msgspec.Struct, frozen=True, tag="complex"):
    """A complex number that is passed unchanged."""

    real: float
    imaginary: float


class DType(msgspec.Struct, frozen=True, tag="dtype"):
    """A torch dtype passed as an argument."""

    value: str


class Layout(msgspec.Struct, frozen=True, tag="layout"):
    """A torch layout passed as an argument: ``strided``."""

    value: str


class MemoryFormat(msgspec.Struct, frozen=True, tag="memory_format"):
    """A torch memory format passed as an argument: ``channels_last``."""

    value: str


class JudgedDevice(msgspec.Struct, frozen=True, tag="device"):
    """The device on which the case is judged, passed as an argument."""


class Sequence(msgspec.Struct, frozen=True, tag="sequence"):
    """A list of arguments (``cat``'s tensors, an integer list)."""

    items: tuple[Argument, ...]


Argument = Tensor | Scalar | NonFinite | Complex | DType | Layout | MemoryFormat | JudgedDevice | Sequence


class Case(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """An operator with recipes for its arguments."""

    suite: str
    operator: str
    """Full overload name: ``aten.add.Tensor``."""
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument] = {}
    tags: tuple[str, ...] = ()
    """Properties of the case: ``empty``, ``noncontiguous``, ``speed`` … Any words, for filtering and reports."""
    timed: bool = False
    """Whether the case is large enough that its speed is meaningful. Other cases are only checked."""
    jitter: bool = True
    """Whether the judge may also call it with other sizes and layouts (hidden variants). Not part of the key."""
    layouts: bool = False
    """Whether it may be called with other layouts even if not with other sizes. Not part of the key."""
    indistinct: str = ""
    """Why a trivial adversary may pass this case; empty: none may. Not part of the key."""
    occurrences: int = 0
    """How often the call occurred in the programs from which it was recorded; 0: not recorded. Not part of the key."""
    model: SourceFiles | None = None
    """The problem file, if a problem's ``Model`` is judged instead of an operator of torch."""

    @cached_property
    def key(self) -> str:
        """Content hash of operator, argument recipes, `timed` and the model's source files. The same in every suite."""
        problem = () if self.model is None else (self.model.files,)
        return content_key(self.operator, self.args, self.kwargs, self.timed, *problem)

    @property
    def label(self) -> str:
        """The arguments in one short line, for tables and messages."""
        parts = [describe(a) for a in self.args]
        parts += [f"{name}={describe(a)}" for name, a in self.kwargs.items()]
        return ", ".join(parts)


GRADIENTS = "torchstone_grad"
"""The namespace of gradients: ``torchstone_grad.mul.Tensor`` is ``aten.mul.Tensor`` with its derivative."""


def gradient_operator(operator: str) -> str:
    """The name of an ATen operator's gradient."""
    return f"{GRADIENTS}.{operator.partition('.')[2]}"


def is_gradient(operator: str) -> bool:
    """Whether the operator is a gradient."""
    return operator.partition(".")[0] == GRADIENTS


MODELS = "kernelbench"
"""The namespace of models that problem files define."""


def is_model(operator: str) -> bool:
    """Whether the operator is a problem's model, or its gradient."""
    return forward_operator(operator).partition(".")[0] == MODELS


def forward_operator(operator: str) -> str:
    """The operator that a gradient belongs to; any other name is returned unchanged."""
    return f"aten.{operator.partition('.')[2]}" if is_gradient(operator) else operator


_SHORT_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def describe(argument: Argument) -> str:
    """``T([2, 3], f32)`` for tensors, the plain value for the rest."""
    match argument:
        case Tensor(shape=shape, dtype=dtype, strides=strides, offset=offset):
            layout = "" if strides is None else f", stride={list(strides)}"
            shift = f", offset={offset}" if offset else ""
            return f"T({list(shape)}, {_SHORT_DTYPES.get(dtype, dtype)}{layout}{shift})"
        case Scalar(value=value):
            return repr(value)
        case NonFinite(value=value):
            return value
        case Complex(real=real, imaginary=imaginary):
            return repr(complex(real, imaginary))
        case DType(value=value) | Layout(value=value) | MemoryFormat(value=value):
            return value
        case JudgedDevice():
            return "device"
        case Sequence(items=items):
            return "[" + ", ".join(describe(item) for item in items) + "]"


def tensors_of(case: Case) -> tuple[Tensor, ...]:
    """Every tensor recipe of the case in the order of its arguments, lists flattened."""
    found: list[Tensor] = []

    def walk(argument: Argument) -> None:
        if isinstance(argument, Tensor):
            found.append(argument)
        elif isinstance(argument, Sequence):
            for item in argument.items:
                walk(item)

    for argument in (*case.args, *case.kwargs.values()):
        walk(argument)
    return tuple(found)
