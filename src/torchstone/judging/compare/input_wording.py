"""Words the inputs of a wrong element for a message.

For a pointwise operator, these are the values that are broadcast to the element. In any other operator an element
depends on many values, so the message describes the arguments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.number_wording import shown

_MOST_ARGUMENTS = 8
"""Most arguments that a message names: models have hundreds of weights."""
_INPUT_DIGITS = 9
"""Significant digits of an input: enough to identify any float32."""
_DTYPES_WITHOUT_ORDER = (torch.bool, torch.complex32, torch.complex64, torch.complex128)


def inputs_at(call: DrawnCall, place: ResultPosition, index: Sequence[int], shape: Sequence[int]) -> str:
    """``inputs there: self = 1.5, other = -2``, or ``arguments: self float32 [2, 3] (from -2.1 to 3.4), dim 1``.

    The element is at ``index`` of a result of this ``shape``.
    """
    there = values_at(call, place, index, shape)
    if there:
        scalars = [f"{name} = {schema.describe(argument)}" for name, argument in _plain_arguments(call)]
        return "inputs there: " + _listed([*(f"{name} = {value}" for name, value in there.items()), *scalars])
    described = [f"{name} {_described(tensor)}" for name, tensor in _named(call)]
    described += [f"{name} {schema.describe(argument)}" for name, argument in _plain_arguments(call)]
    return "arguments: " + _listed(described)


def values_at(call: DrawnCall, place: ResultPosition, index: Sequence[int], shape: Sequence[int]) -> dict[str, str]:
    """For one element of the result, the element of each tensor argument that it depends on, by name.

    Empty if it depends on more than one element of an argument.
    """
    if place.kind != "output" or not _is_pointwise(call.case.operator) or not _all_broadcast(call, shape):
        return {}
    return {name: _value_at(tensor.view, index, shape) for name, tensor in _named(call)}


def _named(call: DrawnCall) -> list[tuple[str, DrawnTensor]]:
    """The call's tensors with their argument's name. Tensors of a list are numbered: ``tensors[1]``."""
    names = [name for name, _ in operators.named_tensors(call.case)]
    counts, seen = Counter(names), Counter[str]()
    found = []
    for name, tensor in zip(names, call.tensors, strict=True):
        found.append((f"{name}[{seen[name]}]" if counts[name] > 1 else name, tensor))
        seen[name] += 1
    return found


def _plain_arguments(call: DrawnCall) -> list[tuple[str, schema.Argument]]:
    given = operators.named_arguments(call.case.operator, call.case.args, call.case.kwargs)
    return [(name, argument) for name, argument in given if not operators.tensor_count(argument)]


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - _MOST_ARGUMENTS
    return ", ".join(parts[:_MOST_ARGUMENTS]) + (f" and {more} more" if more > 0 else "") if parts else "none"


def _is_pointwise(operator: str) -> bool:
    return operators.traits(schema.forward_operator(operator)).pointwise


def _all_broadcast(call: DrawnCall, shape: Sequence[int]) -> bool:
    """Whether the arguments broadcast to the result's shape. False for gradients that sum over broadcast elements."""
    shapes = [tensor.recipe.shape for tensor in call.tensors]
    try:  # torch's own function imports a library for algebra, which takes a second
        return bool(shapes) and np.broadcast_shapes(*shapes) == tuple(shape)
    except ValueError:
        return False


def _value_at(view: torch.Tensor, index: Sequence[int], shape: Sequence[int]) -> str:
    return shown(view.expand(tuple(shape))[tuple(index)].item(), _INPUT_DIGITS)


def _described(tensor: DrawnTensor) -> str:
    recipe = tensor.recipe
    strides = "" if recipe.strides is None else f" strides {list(recipe.strides)}"
    offset = f" offset {recipe.offset}" if recipe.offset else ""
    return f"{recipe.dtype} {list(recipe.shape)}{strides}{offset}{_range(tensor.view)}"


def _range(view: torch.Tensor) -> str:
    """The least and the largest value; empty if the values have no order, or torch cannot compare them."""
    if not view.numel() or view.dtype in _DTYPES_WITHOUT_ORDER:
        return ""
    try:
        low, high = (edge.item() for edge in torch.aminmax(view))
    except RuntimeError:
        return ""
    return " (with NaN)" if math.isnan(low) or math.isnan(high) else f" (from {shown(low, 3)} to {shown(high, 3)})"
