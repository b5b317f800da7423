"""Indices of values that are equal: which of them is right where torch promises none.

torch documents that max, min, argmax and argmin give the first of equal values, and that a stable sort keeps their
order: those indices must be torch's own. For topk, sort, kthvalue, median and mode it promises nothing, so any index
is right at which the right value stands; where several are returned along the dimension, they must differ.
"""

from __future__ import annotations

from typing import Any

import torch

from torchstone import operators
from torchstone.judging.evaluation import Place
from torchstone.judging.inputs import DrawnCall

_INDEX_OUTPUT = {"topk": 1, "sort": 1, "argsort": 0, "kthvalue": 1, "median": 1, "nanmedian": 1, "mode": 1}
"""Base name -> which output holds indices, for operators that promise nothing about ties."""
_SEVERAL = frozenset({"topk", "sort", "argsort"})
"""Those that return several indices along the dimension."""


def accepts(call: DrawnCall, place: Place, got: torch.Tensor, native: torch.Tensor) -> bool:
    """Whether these indices are as good as torch's own."""
    name = call.case.operator.split(".")[1]
    given = _arguments(call)
    if place != Place("output", _INDEX_OUTPUT.get(name, -1)) or given.get("stable") or "dim" not in given:
        return False
    source, dim = given["self"], given["dim"]
    if source.dim() == 0 or got.dtype != torch.int64 or not bool(((got >= 0) & (got < source.shape[dim])).all()):
        return False
    if name in _SEVERAL and not bool((got.sort(dim=dim).values.diff(dim=dim) != 0).all()):
        return False
    one, other = (source.gather(dim, _kept(indices, source, dim)) for indices in (got, native))
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _arguments(call: DrawnCall) -> dict[str, Any]:
    """The call's arguments by name, defaults included."""
    declared = operators.resolve(call.case.operator)._schema.arguments
    given = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    positional = {argument.name: value for argument, value in zip(declared, call.args, strict=False)}
    return given | positional | call.kwargs


def _kept(indices: torch.Tensor, source: torch.Tensor, dim: int) -> torch.Tensor:
    return indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
