"""Checks a kernel's results against the schema of its overload, and converts numbers to tensors where it takes tensors.

A kernel in the dispatcher must return what the schema declares (new memory, a view, or the argument it wrote to), or
autograd fails silently. A result that *is* an argument changes that argument's history. A copy instead of a view loses
writes to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

_DTYPE_OF_NUMBER = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""Type of a Python number -> the dtype that keeps its whole precision."""


@dataclass(frozen=True)
class Promise:
    """What the schema declares about one return value."""

    kind: Literal["tensor", "list", "other"]
    relation: Literal["fresh", "argument", "view", "any"]
    """New memory, the written argument itself (in place, ``out=``), a view of an argument, or any of these."""
    place: int | str | None = None
    """The argument: its position, or its name if it is keyword-only. None for new memory and for any."""


class Contract:
    """What the schema of one overload declares about its return values and tensor arguments."""

    def __init__(self, overload: torch._ops.OpOverload) -> None:
        arguments = overload._schema.arguments
        places: dict[str, int | str] = {}
        for position, argument in enumerate(arguments):
            for alias in argument.alias_info.before_set if argument.alias_info is not None else ():
                places[alias] = argument.name if argument.kwarg_only else position
        fresh: Literal["fresh", "any"] = "any" if _may_alias(overload) else "fresh"
        self._returns = tuple(_promise(item, places, fresh) for item in overload._schema.returns)
        self._tensor_positions = tuple(
            position
            for position, argument in enumerate(arguments)
            if not argument.kwarg_only and str(argument.type) in ("Tensor", "Optional[Tensor]")
        )

    def with_tensors(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with tensors where the schema declares tensors.

        In ``x + 1``, ``add.Tensor`` gets a tensor that is marked as a number, and torch passes it to Python as ``1``.
        """
        numbers = [
            place for place in self._tensor_positions if place < len(args) and type(args[place]) in _DTYPE_OF_NUMBER
        ]
        if not numbers:
            return args
        like = _deciding_tensor(args)
        return tuple(_as_tensor(item, like) if place in numbers else item for place, item in enumerate(args))

    def breach(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """How a result violates the schema; empty: it does not."""
        if not self._returns:
            return ""
        results = (result,) if len(self._returns) == 1 else result
        if not isinstance(results, (tuple, list)) or len(results) != len(self._returns):
            return f"it returned {_kind(result)}, where the operator returns {len(self._returns)} values"
        several = len(self._returns) > 1  # among several results, None means that a result was not requested
        breaches = (
            "" if item is None and several else _breach(promise, item, args, kwargs)
            for promise, item in zip(self._returns, results, strict=True)
        )
        return next((text for text in breaches if text), "")


def _may_alias(overload: torch._ops.OpOverload) -> bool:
    """Whether results may share the memory of arguments although the schema does not declare it.

    A composite operator returns what another operator returned (``type_as``); ``_unsafe_view`` returns views.
    """
    composed = torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, "CompositeImplicitAutograd")
    return composed or overload._name.startswith("aten::_unsafe_")


def _promise(declared: Any, places: dict[str, int | str], fresh: Literal["fresh", "any"]) -> Promise:
    kind: Literal["tensor", "list", "other"] = "other"
    if str(declared.type) == "Tensor":
        kind = "tensor"
    elif str(declared.type) == "List[Tensor]":
        kind = "list"
    alias = declared.alias_info
    place = next((places[name] for name in alias.before_set if name in places), None) if alias is not None else None
    if place is None:
        return Promise(kind, fresh)
    return Promise(kind, "argument" if alias.is_write else "view", place)


def _breach(promise: Promise, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if promise.kind == "other":
        return ""
    expected = torch.Tensor if promise.kind == "tensor" else (list, tuple)
    if not isinstance(result, expected):
        return f"it returned {_kind(result)}, where the operator returns a {promise.kind}"
    if promise.kind == "list" or promise.relation == "any":
        return ""  # tensors in lists may be views or new, as torch's own are
    if promise.relation == "fresh":
        if any(_share_memory(result, item) for item in _tensors(args, kwargs)):
            return "its result shares the memory of an argument, where the operator returns a new tensor"
        return ""
    target = args[promise.place] if isinstance(promise.place, int) else kwargs.get(str(promise.place))
    if promise.relation == "argument" and result is not target:
        return "it returned another tensor than the argument that the operator writes to and returns"
    if promise.relation == "view" and not _share_memory(result, target):
        return "it returned a copy, where the operator returns a view"
    return ""


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for item in (*args, *kwargs.values()):
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            found += [each for each in item if isinstance(each, torch.Tensor)]
    return found


def _deciding_tensor(args: tuple[Any, ...]) -> torch.Tensor | None:
    """The tensor argument that, together with a number, decides the result's dtype."""
    tensors = _tensors(args, {})
    return next((item for item in tensors if item.dim()), tensors[0] if tensors else None)


def _as_tensor(number: bool | int | float | complex, like: torch.Tensor | None) -> torch.Tensor:
    """A tensor without dimensions that gives the same result dtype by type promotion as the number."""
    widest = _DTYPE_OF_NUMBER[type(number)]
    if like is None:
        return torch.tensor(number, dtype=widest, device="cpu")
    dtype = torch.result_type(like, number)
    keeps_its_precision = dtype == like.dtype and like.dim() > 0
    return torch.tensor(number, dtype=widest if keeps_its_precision else dtype, device="cpu")


def _share_memory(one: Any, other: Any) -> bool:
    found: bool = torch._C._is_alias_of(one, other)  # type: ignore[attr-defined]
    return found


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(value)}"
    return "None" if value is None else type(value).__name__
