"""Decides which indices are right among equal values, where torch promises no particular one (topk, sort, median).

torch documents that max, min, argmax and argmin give the first of equal values, and that a stable sort keeps their
order. Those indices must be torch's own. It promises nothing for topk, sort, kthvalue, median, cummax, cummin and max
pooling. There an index is right if the source has the right value at it. For cummax and cummin the index must not lie
beyond the result's own position. Where several indices are returned along the dimension, they must be distinct. mode is
"a value which appears most often": any value as frequent as torch's own is right, and any index of it.
"""

from __future__ import annotations

from typing import Any

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.same_values import elementwise_same


def accepts(call: DrawnCall, place: ResultPosition, got: torch.Tensor, native: torch.Tensor, first: Any) -> bool:
    """Whether an output that differs from torch's is another right choice: of indices, or of mode's values.

    ``first``: the first output of the same call, to whose values indices belong.
    """
    traits = operators.traits(call.case.operator)
    if schema.is_gradient(call.case.operator) or schema.is_model(call.case.operator) or place.kind != "output":
        return False
    if traits.base == "mode":
        return _are_as_frequent(call, got, native) if place.position == 0 else _has_values_at(call, first, got)
    if place.position == 1 and traits.pooled_dimensions:
        return _accepts_pooling_indices(call, traits.pooled_dimensions, got, native)
    return place.position == traits.open_indices and _accepts_indices_along_dim(call, traits, got, native)


def _accepts_indices_along_dim(
    call: DrawnCall, traits: operators.Traits, got: torch.Tensor, native: torch.Tensor
) -> bool:
    given = _arguments(call)
    if given.get("stable") or "dim" not in given:
        return False
    source, dim = given["self"], given["dim"]
    if source.dim() == 0 or not _are_below(got, source.shape[dim]):
        return False
    if traits.returns_several_indices and not bool((got.sort(dim=dim).values.diff(dim=dim) != 0).all()):
        return False
    if traits.is_running_extreme and not bool((got <= _positions_along(source, dim)).all()):
        return False
    one, other = (source.gather(dim, _with_dim(indices, source, dim)) for indices in (got, native))
    return bool(elementwise_same(one, other).all())


def _are_as_frequent(call: DrawnCall, got: torch.Tensor, native: torch.Tensor) -> bool:
    """Whether each of these values occurs as often in its row as torch's own choice does."""
    given = _arguments(call)
    source, dim = given["self"], given["dim"]
    if source.dim() == 0:
        return False
    one, other = _with_dim(got, source, dim), _with_dim(native, source, dim)
    counts, native_counts = ((source == value).sum(dim=dim, keepdim=True) for value in (one, other))
    return bool((elementwise_same(one, other) | ((counts == native_counts) & (counts > 0))).all())


def _has_values_at(call: DrawnCall, values: torch.Tensor, indices: torch.Tensor) -> bool:
    """Whether the source has these values at these indices. The values themselves are judged as output 0."""
    given = _arguments(call)
    source, dim = given["self"], given["dim"]
    if source.dim() == 0 or not _are_below(indices, source.shape[dim]):
        return False
    return bool(
        elementwise_same(source.gather(dim, _with_dim(indices, source, dim)), _with_dim(values, source, dim)).all()
    )


def _accepts_pooling_indices(call: DrawnCall, dimensions: int, got: torch.Tensor, native: torch.Tensor) -> bool:
    source = call.args[0].flatten(-dimensions)
    if not _are_below(got, source.shape[-1]):
        return False
    one, other = (source.gather(-1, indices.flatten(-dimensions)) for indices in (got, native))
    return bool(elementwise_same(one, other).all())


def _are_below(indices: torch.Tensor, size: int) -> bool:
    return indices.dtype == torch.int64 and bool(((indices >= 0) & (indices < size)).all())


def _positions_along(source: torch.Tensor, dim: int) -> torch.Tensor:
    """The positions along a dimension, in a shape that broadcasts to ``source``."""
    shape = [1] * source.dim()
    shape[dim] = source.shape[dim]
    return torch.arange(source.shape[dim], device=source.device).view(shape)


def _arguments(call: DrawnCall) -> dict[str, Any]:
    """The call's arguments by name, defaults included."""
    declared = operators.resolve(call.case.operator)._schema.arguments
    given = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    positional = {argument.name: value for argument, value in zip(declared, call.args, strict=False)}
    return given | positional | call.kwargs


def _with_dim(indices: torch.Tensor, source: torch.Tensor, dim: int) -> torch.Tensor:
    """The tensor with the reduced dimension put back, as with ``keepdim=True``."""
    return indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
