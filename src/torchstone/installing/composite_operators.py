"""Computes gradients for kernels of composite operators, which torch builds from others (``linear``, ``layer_norm``).

Most operators have a derivative formula above the dispatch keys CPU and CUDA, which a kernel at these keys does not
replace. Composite operators have none: autograd differentiates the operators that they call. A kernel calls none of
them. So the backward pass runs torch's composition once more on the same arguments, and differentiates that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

_REFUSED_TAGS = ("nondeterministic_seeded", "maybe_aliasing_or_mutating")


def is_composed(overload: torch._ops.OpOverload, key: str) -> bool:
    """Whether the overload has no kernel of its own at this dispatch key and is composed of other operators."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(overload._name, "CompositeImplicitAutograd") and not has_kernel(overload._name, key)


def obstacle(overload: torch._ops.OpOverload) -> str:
    """Why a backward pass cannot run the composition again; empty: it can."""
    schema = overload._schema
    advice = "install kernels for the operators that it is made of"
    if any(item.alias_info is not None for item in (*schema.arguments, *schema.returns)):
        return f"torch composes it of other operators and it writes to or returns views of its arguments; {advice}"
    tags = {tag.name for tag in overload.tags}
    keeps_state = any(item.name.startswith("running_") for item in schema.arguments)
    if keeps_state or tags.intersection(_REFUSED_TAGS):
        return f"torch composes it of other operators, with random numbers or hidden state; {advice}"
    return ""


def call_with_gradient(
    kernel: Callable[..., Any], composition: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The kernel's result. Its backward pass is that of the composition."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not torch.is_grad_enabled() or not any(leaves[place].requires_grad for place in places):
        return kernel(args, kwargs)
    call = _Call(kernel, composition, leaves, spec, places)
    results = _Composed.apply(call, *(leaves[place] for place in places))  # type: ignore[no-untyped-call]
    assert call.result_spec is not None, "forward has run"
    return pytree.tree_unflatten(list(results), call.result_spec)


class _Call:
    """The functions and the non-tensor arguments of one call. Autograd saves the tensor arguments."""

    def __init__(
        self,
        kernel: Callable[..., Any],
        composition: Callable[..., Any],
        leaves: list[Any],
        spec: pytree.TreeSpec,
        places: list[int],
    ) -> None:
        self._kernel = kernel
        self._composition = composition
        self._others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._spec = spec
        self._places = places
        self.result_spec: pytree.TreeSpec | None = None

    def compute(self, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        results, self.result_spec = pytree.tree_flatten(self._kernel(*self._arguments(tensors)))
        return tuple(results)

    def compose(self, tensors: list[torch.Tensor]) -> list[Any]:
        args, kwargs = self._arguments(tensors)
        return pytree.tree_leaves(self._composition(*args, **kwargs))

    def _arguments(self, tensors: tuple[torch.Tensor, ...] | list[torch.Tensor]) -> tuple[Any, Any]:
        leaves = list(self._others)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs


class _Composed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> tuple[Any, ...]:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return call.compute(tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        needs_gradient = ctx.needs_input_grad[1:]
        creates_graph = torch.is_grad_enabled()  # create_graph=True: the gradient itself is to be differentiated
        with torch.enable_grad():
            # With create_graph, views keep the history of the saved tensors: the gradient can be differentiated.
            inputs = [
                (item.view_as(item) if creates_graph else item.detach().requires_grad_()) if needed else item
                for item, needed in zip(saved, needs_gradient, strict=True)
            ]
            results = ctx.call.compose(inputs)
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, gradients, strict=True)
            if gradient is not None and isinstance(result, torch.Tensor) and result.requires_grad
        ]
        sources = [item for item, needed in zip(inputs, needs_gradient, strict=True) if needed]
        if not pairs:
            return (None,) * (1 + len(inputs))
        outputs, seeds = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, sources, seeds, create_graph=creates_graph, allow_unused=True))
        return (None, *(next(found) if needed else None for needed in needs_gradient))
