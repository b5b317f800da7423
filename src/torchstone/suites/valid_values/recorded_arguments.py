"""Makes case arguments from a recorded call: each tensor gets a way to draw values that suits operator and dtype."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from torchstone.schema import (
    Argument,
    Booleans,
    DType,
    Fill,
    Given,
    Integers,
    JudgedDevice,
    Layout,
    MemoryFormat,
    NonFinite,
    Normal,
    PositiveDefinite,
    Scalar,
    Sequence,
    Simplex,
    SortedIntegers,
    Tensor,
    Uniform,
    WindowPositions,
)
from torchstone.suites.recorded_call_text import TorchName, TracedCall, TracedTensor, Value
from torchstone.suites.valid_values.all_rules import rule_of
from torchstone.suites.valid_values.named_call import NamedCall
from torchstone.suites.valid_values.rule_table import COUNTS, DIVISORS, NUMBERS, SIGNED, UNIT

_DEVICE = re.compile(r"(?:torch\.device\(')?(?:cpu|cuda)(?::\d+)?(?:'\))?")


class ValuedCall(NamedTuple):
    """A recorded call as the arguments of a case."""

    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    jitter: bool
    """Whether the judge may try other sizes: not, for example, where torch does not detect an index out of range."""


def fills_for(operator: str, call: TracedCall) -> ValuedCall:
    """The arguments of a case for this call of the operator (``aten.embedding.default``)."""
    rule = rule_of(operator)
    named = NamedCall(rule.arguments, call)
    fills = rule.fills(named)
    args = tuple(
        _argument(value, fills.get(rule.arguments[place]) if place < len(rule.arguments) else None)
        for place, value in enumerate(call.args)
    )
    kwargs = {name: _argument(value, fills.get(name)) for name, value in call.kwargs.items()}
    return ValuedCall(args, kwargs, rule.jitter)


def _argument(value: Value, fill: Fill | tuple[Fill | None, ...] | None) -> Argument:
    match value:
        case TracedTensor():
            return _tensor(value, None if isinstance(fill, tuple) else fill)
        case TorchName(kind="dtype", name=name):
            return DType(name)
        case TorchName(kind="layout", name=name):
            return Layout(name)
        case TorchName(name=name):
            return MemoryFormat(name)
        case tuple():
            each = fill if isinstance(fill, tuple) and len(fill) == len(value) else (fill,) * len(value)
            return Sequence(tuple(_argument(item, one) for item, one in zip(value, each, strict=True)))
        case str() if _DEVICE.fullmatch(value):
            return JudgedDevice()
        case float() if not math.isfinite(value):
            return NonFinite("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
        case _:
            return Scalar(value)


def _tensor(tensor: TracedTensor, fill: Fill | None) -> Tensor:
    strides = None if tensor.strides == _contiguous(tensor.shape) else tensor.strides
    return Tensor(tensor.shape, tensor.dtype, _fitting(tensor, fill), strides)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))


def _fitting(tensor: TracedTensor, fill: Fill | None) -> Fill:
    """The fill, if the tensor's dtype and strides allow it; otherwise the most similar one that they allow."""
    if tensor.dtype == "bool":
        return fill if isinstance(fill, Booleans | Given) else Booleans()
    if fill is not None and _is_expanded(tensor):
        fill = _per_element(fill)
    if isinstance(fill, PositiveDefinite) and not _is_square(tensor.shape):
        fill = None
    if tensor.dtype.startswith("complex"):
        return fill if isinstance(fill, Normal | Uniform | PositiveDefinite) else SIGNED
    if not tensor.dtype.startswith(("float", "bfloat")):
        return _whole(fill, unsigned=tensor.dtype.startswith("uint"))
    return SIGNED if fill is None or isinstance(fill, Booleans | WindowPositions) else fill


def _is_expanded(tensor: TracedTensor) -> bool:
    """Whether elements share memory by stride 0, so that they cannot differ."""
    strides = tensor.strides or ()
    return any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=False))


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[-1] == shape[-2]


def _per_element(fill: Fill) -> Fill | None:
    match fill:
        case SortedIntegers(low=low, high=high):
            return Integers(low, high)
        case Simplex():
            return UNIT
        case WindowPositions(plane=plane):
            return Integers(0, math.prod(plane))
        case PositiveDefinite() | Given():
            return None
        case _:
            return fill


def _whole(fill: Fill | None, *, unsigned: bool) -> Fill:
    """The fill for an integer dtype."""
    match fill:
        case Integers() | SortedIntegers() | Given() | WindowPositions():
            return fill
        case Uniform(low=low) if low > 0:
            return DIVISORS
        case Uniform(low=low) if low >= 0:
            return COUNTS
        case _:
            return COUNTS if unsigned else NUMBERS
