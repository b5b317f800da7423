"""Gradients as operators: what the derivative of ``aten.mul.Tensor`` must give, under a name of its own.

``torchstone_grad.mul.Tensor`` takes what the operator takes, and before it a list: for each result how much it counts
(a cotangent), or None for results that have no derivative. It returns the gradient of every floating-point argument.
torch's own is registered when it is first asked for; a candidate is turned into the same thing by
:func:`differentiated`. Judge and worker share this, since both must make the same calls; whoever has a gradient under
a name can be drawn for, compared and timed like anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.schema import forward_operator, is_gradient

_registered: dict[str, torch.library.Library] = {}


def register(operator: str) -> None:
    """Make the name resolvable. Registering twice is no harm; an operator that torch does not have is left alone."""
    if operator in _registered or not is_gradient(operator):
        return
    overload = _overload(forward_operator(operator))
    if overload is None:
        return
    namespace, name, variant = operator.split(".")
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    declared = name if variant == "default" else f"{name}.{variant}"
    signature = f"{declared}(Tensor?[] cotangents, {_arguments(overload)}) -> Tensor[]"
    library.define(signature)  # type: ignore[no-untyped-call]
    library.impl(declared, differentiated(overload), "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    _registered[operator] = library


def differentiated(function: Callable[..., Any]) -> Callable[..., list[torch.Tensor]]:
    """A forward and a backward pass through the function: gradients instead of results."""

    def gradients(cotangents: Sequence[torch.Tensor | None], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        leaves: list[torch.Tensor] = []
        with torch.enable_grad():
            told = [_as_leaf(argument, leaves) for argument in args]
            named = {name: _as_leaf(argument, leaves) for name, argument in kwargs.items()}
            results = _flattened(function(*told, **named))
            sources = _sources(results, cotangents)
            pairs = [(r, c) for r, c in zip(sources, cotangents, strict=True) if c is not None]
            found = torch.autograd.grad([r for r, _ in pairs], leaves, [c for _, c in pairs], allow_unused=True)
        return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, found, strict=True)]

    return gradients


def _sources(results: Sequence[Any], cotangents: Sequence[torch.Tensor | None]) -> Sequence[Any]:
    if len(results) != len(cotangents):
        raise TypeError(f"the kernel returns {len(results)} results; the operator returns {len(cotangents)}")
    for place, (result, cotangent) in enumerate(zip(results, cotangents, strict=True)):
        if cotangent is not None and not (isinstance(result, torch.Tensor) and result.requires_grad):
            raise NotImplementedError(
                f"result {place} carries no gradient. Compute it with differentiable operators, or wrap the kernel in "
                "a torch.autograd.Function that has a backward."
            )
    return results


def _as_leaf(argument: Any, leaves: list[torch.Tensor]) -> Any:
    """Floating-point tensors as the leaves of a graph of their own, everything else as it is."""
    if isinstance(argument, list | tuple):
        return [_as_leaf(item, leaves) for item in argument]
    if not isinstance(argument, torch.Tensor) or not (argument.is_floating_point() or argument.is_complex()):
        return argument
    leaf = argument.detach().requires_grad_()
    leaves.append(leaf)
    return leaf


def _flattened(result: Any) -> list[Any]:
    return [leaf for item in result for leaf in _flattened(item)] if isinstance(result, list | tuple) else [result]


def _overload(operator: str) -> Any:
    found: Any = torch.ops
    try:
        for part in operator.split("."):
            found = getattr(found, part)
    except AttributeError:
        return None
    return found if isinstance(found, torch._ops.OpOverload) else None


def _arguments(overload: torch._ops.OpOverload) -> str:
    """The operator's own, as its schema writes them; the marks of what is written to or shared are left out."""
    inside = str(overload._schema).partition("(")[2].rpartition(") ->")[0]
    for alias in ("(a!)", "(b!)", "(c!)", "(a)", "(b)", "(a -> *)"):
        inside = inside.replace(alias, "")
    return inside
