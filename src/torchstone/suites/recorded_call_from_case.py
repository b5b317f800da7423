"""Makes a recorded call from the arguments of a case: its tensors have shape, strides and dtype, but no values.

:func:`torchstone.suites.valid_values.fills_for` converts them back.
"""

from __future__ import annotations

from torchstone.schema import (
    Argument,
    Complex,
    DType,
    JudgedDevice,
    Layout,
    MemoryFormat,
    NonFinite,
    Scalar,
    Sequence,
    Tensor,
)
from torchstone.suites.recorded_call_text import SHORT_DTYPES, TorchName, TracedCall, TracedTensor, Value


class Untraceable(Exception):  # noqa: N818 - an answer: recorded calls have no form for this argument
    """A call cannot be written as a recorded call; the text is the reason."""


def traced(args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> TracedCall:
    """The call in the form of a recorded call, which has no storage offsets."""
    return TracedCall(
        tuple(_value(argument) for argument in args), {name: _value(argument) for name, argument in kwargs.items()}
    )


def _value(argument: Argument) -> Value:
    match argument:
        case Tensor(shape=shape, dtype=dtype, strides=strides) if dtype in SHORT_DTYPES.values():
            return TracedTensor(shape, dtype, strides)
        case Tensor(dtype=dtype):
            raise Untraceable(f"a tensor of dtype {dtype}")
        case Scalar(value=value):
            return value
        case NonFinite(value=text):
            return float(text)
        case DType(value=name):
            return TorchName("dtype", name)
        case Layout(value=name):
            return TorchName("layout", name)
        case MemoryFormat(value=name):
            return TorchName("memory_format", name)
        case JudgedDevice():
            return "cpu"
        case Sequence(items=items):
            return tuple(_value(item) for item in items)
        case Complex():
            raise Untraceable("a complex number")
