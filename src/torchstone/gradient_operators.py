"""Gradients as operators: ``torchstone_grad.mul.Tensor`` is ``aten.mul.Tensor`` with its derivative.

It takes a list of cotangents, one for each result (None for results without a derivative), and then the operator's
arguments. It returns the operator's results, then the gradient of every floating-point argument, or of those whose
positions are in ``asking`` (if weights are frozen). Results are part of it, so a kernel cannot skip the forward pass.

torch's own gradient is registered when it is first used; :class:`Differentiated` makes one of a candidate. The judge
(trusted) and the worker (runs the candidate) share this module, because both must make the same calls.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchstone.schema import forward_operator, is_gradient

REQUESTED_GRADIENTS = "asking"
"""Name of the argument that lists which arguments require a gradient."""
_TIMED_BLOCKS, _CALLS_PER_BLOCK = 15, 20
"""`differentiating_ns` times so many blocks of so many calls, and takes the median of the blocks."""
_registered: dict[str, torch.library.Library] = {}


def register(operator: str) -> None:
    """Make the name resolvable. Registering twice is allowed; unknown operators are ignored."""
    if operator in _registered or not is_gradient(operator):
        return
    overload = _overload(forward_operator(operator))
    if overload is None:
        return
    namespace, name, variant = operator.split(".")
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    declared = name if variant == "default" else f"{name}.{variant}"
    arguments = _arguments(overload)
    named = "" if "*, " in arguments else "*, "
    signature = f"{declared}(Tensor?[] cotangents, {arguments}, {named}int[]? {REQUESTED_GRADIENTS}=None) -> Tensor[]"
    library.define(signature)  # type: ignore[no-untyped-call]
    library.impl(declared, Differentiated(overload), "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    _registered[operator] = library


class Differentiated:
    """A forward and a backward pass through a function: its results, then the gradients."""

    def __init__(self, function: Callable[..., Any], reference: Callable[..., Any] | None = None) -> None:
        """``reference``: torch's own operator; :meth:`Passes.forward_with_changed_arguments` calls it first."""
        self._function = function
        self._reference = reference

    def __call__(self, cotangents: Sequence[torch.Tensor | None], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        return self.bound((cotangents, *args), kwargs)()

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Passes:
        """The call with these arguments, for repeated use: they are marked once as requiring gradients."""
        cotangents, *others = args
        floating: list[torch.Tensor] = []
        positional = [_as_leaf(argument, floating) for argument in others]
        named = {name: _as_leaf(argument, floating) for name, argument in kwargs.items() if name != REQUESTED_GRADIENTS}
        requested = kwargs.get(REQUESTED_GRADIENTS)
        leaves = floating if requested is None else [floating[place] for place in requested]
        for leaf in leaves:
            leaf.requires_grad_()
        return Passes(self._function, positional, named, leaves, cotangents, self._reference)


class Passes:
    """A forward pass and its backward pass, at once or separately."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        leaves: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        reference: Callable[..., Any] | None = None,
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._leaves, self._cotangents = leaves, cotangents
        self._reference = reference
        self._present_cotangents = [cotangent for cotangent in cotangents if cotangent is not None]
        self._cotangent_addresses = {
            cotangent.data_ptr() for cotangent in self._present_cotangents if cotangent.numel()
        }

    def __call__(self) -> list[torch.Tensor]:
        with torch.enable_grad():
            results = _flattened(self._function(*self._args, **self._kwargs))
        return self.backward(results)

    def forward(self, beside: Passes) -> list[Any]:
        """The results of a forward pass on copies of the arguments, freed afterwards unless the kernel keeps them.

        In a model most arguments are results of other layers, and their memory is reused. A second call, whose results
        are dropped, shares some of the copies, as parallel layers share inputs: those at even positions. Its other
        arguments are copies of those of ``beside``.
        """
        with torch.enable_grad():
            args, kwargs = self._copied_arguments()
            results = _flattened(self._function(*args, **kwargs))
            others, other_kwargs = beside._copied_arguments()
            mixed = [
                own if place % 2 == 0 else other for place, (own, other) in enumerate(zip(args, others, strict=True))
            ]
            self._function(*mixed, **other_kwargs)
            return results

    def forward_with_changed_arguments(self) -> None:
        """Call the function with another size and other scalars, and drop the results.

        Does nothing if an argument holds integers or booleans, or if torch's operator refuses the changed arguments.
        """
        if self._reference is None or any(map(_has_integer_tensor, (*self._args, *self._kwargs.values()))):
            return
        # The reference is called first: what it refuses, the kernel need not accept. A kernel may refuse more.
        with torch.enable_grad(), contextlib.suppress(Exception):
            args = [_changed_argument(argument) for argument in self._args]
            kwargs = {name: _changed_argument(argument) for name, argument in self._kwargs.items()}
            self._reference(*args, **kwargs)
            self._function(*args, **kwargs)

    def _in_own_memory(self, gradient: torch.Tensor | None, leaf: torch.Tensor) -> torch.Tensor:
        """The gradient in memory that is not shared with a cotangent.

        It is zeros if autograd returns None or a tensor without memory (``sgn``), and a copy if autograd returns the
        cotangent itself.
        """
        if gradient is None or gradient._is_zerotensor():
            return torch.zeros_like(leaf)
        return gradient.clone() if gradient.data_ptr() in self._cotangent_addresses else gradient

    def _copied_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        args = [_copied(argument) for argument in self._args]
        return args, {name: _copied(argument) for name, argument in self._kwargs.items()}

    def backward(self, results: Sequence[Any]) -> list[torch.Tensor]:
        """The detached results that are tensors, then the gradient of every leaf."""
        leaves = self._leaves
        with torch.enable_grad():
            found = torch.autograd.grad(
                _sources(results, self._cotangents), leaves, self._present_cotangents, allow_unused=True
            )
        gradients = [self._in_own_memory(grad, leaf) for leaf, grad in zip(leaves, found, strict=True)]
        return [result.detach() for result in results if isinstance(result, torch.Tensor)] + gradients


def differentiating_ns(results: int, leaves: int, device: torch.device) -> float:
    """Nanoseconds per call that autograd's graph alone takes, measured on a function that returns aliases of leaves."""
    ones = [torch.ones(1, device=device) for _ in range(leaves)]
    aliasing = Differentiated(lambda *given: [torch.ops.aten.alias(given[i % leaves]) for i in range(results)])
    call = aliasing.bound(([torch.ones(1, device=device)] * results, *ones), {})
    times = []
    for _ in range(_TIMED_BLOCKS):
        began = time.perf_counter_ns()
        for _ in range(_CALLS_PER_BLOCK):
            call()
        times.append((time.perf_counter_ns() - began) / _CALLS_PER_BLOCK)
    return statistics.median(times)


def _sources(results: Sequence[Any], cotangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """The results that have a cotangent. Raises if the kernel returns too few or too many, or one without a graph."""
    if len(results) != len(cotangents):
        raise TypeError(f"the kernel returns {len(results)} results; the operator returns {len(cotangents)}")
    for place, (result, cotangent) in enumerate(zip(results, cotangents, strict=True)):
        if cotangent is not None and not (isinstance(result, torch.Tensor) and result.requires_grad):
            raise NotImplementedError(
                f"result {place} carries no gradient. Compute it with differentiable operators, or wrap the kernel in "
                "a torch.autograd.Function that has a backward."
            )
    return [result for result, cotangent in zip(results, cotangents, strict=True) if cotangent is not None]


def _as_leaf(argument: Any, leaves: list[torch.Tensor]) -> Any:
    """Floating-point tensors detached, and added to ``leaves``; everything else as it is."""
    if isinstance(argument, list | tuple):
        return [_as_leaf(item, leaves) for item in argument]
    if not isinstance(argument, torch.Tensor) or not (argument.is_floating_point() or argument.is_complex()):
        return argument
    leaf = argument.detach()
    leaves.append(leaf)
    return leaf


def _copied(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return [_copied(item) for item in argument]
    is_differentiable = isinstance(argument, torch.Tensor) and (argument.is_floating_point() or argument.is_complex())
    return argument.clone() if is_differentiable else argument


def _changed_argument(argument: Any) -> Any:
    """The tensor without its last row, or another floating-point number; other arguments unchanged."""
    if isinstance(argument, list | tuple) and any(isinstance(item, torch.Tensor) for item in argument):
        return [_changed_argument(item) for item in argument]
    if isinstance(argument, float):
        return 2.0 * argument or 0.5
    if isinstance(argument, torch.Tensor) and argument.dim() and argument.shape[0] > 1:
        return argument.narrow(0, 0, argument.shape[0] - 1).clone()
    return argument


def _has_integer_tensor(argument: Any) -> bool:
    """Whether there is an integer or boolean tensor. Without the last row, indices could be out of range, which ends a
    process on a GPU.
    """
    if isinstance(argument, list | tuple):
        return any(map(_has_integer_tensor, argument))
    return isinstance(argument, torch.Tensor) and not (argument.is_floating_point() or argument.is_complex())


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
    """The operator's arguments as its schema writes them, without alias annotations."""
    inside = str(overload._schema).partition("(")[2].rpartition(") ->")[0]
    for alias in ("(a!)", "(b!)", "(c!)", "(a)", "(b)", "(a -> *)"):
        inside = inside.replace(alias, "")
    return inside
