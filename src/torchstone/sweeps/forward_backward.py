"""Makes the timed calls of an implementation in the sweep's mode: a forward pass, a backward pass, or both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from torchstone.schema.sweep import SweepMode, SweepPoint
from torchstone.sweeps.operations import Function, Inputs, Operation, leaves
from torchstone.sweeps.tensor_pool import TensorPool
from torchstone.sweeps.timing import Call

Gradients = tuple[torch.Tensor, ...]
"""The cotangents of one call's results, from which a backward pass starts."""


class Passes:
    """The calls of one operation at one point."""

    def __init__(self, operation: Operation, mode: SweepMode) -> None:
        self._mode = mode
        self._differentiated = operation.differentiated

    def calls(self, function: Function, inputs: Sequence[Inputs], gradients: Sequence[Gradients]) -> list[Call]:
        """One call for each set of inputs."""
        if self._mode == "fwd":
            return [partial(function, *each) for each in inputs]
        make = self._backward if self._mode == "bwd" else self._both
        return [make(function, each, start) for each, start in zip(inputs, gradients, strict=True)]

    def results(self, call: Call) -> tuple[torch.Tensor, ...]:
        """Make a call, and return its tensors."""
        return tuple(leaves(call()))

    def _backward(self, function: Function, inputs: Inputs, start: Gradients) -> Call:
        arguments, asked = self._requiring_gradients(inputs)
        results = leaves(function(*arguments))
        return partial(torch.autograd.grad, tuple(results), asked, start, retain_graph=True)

    def _both(self, function: Function, inputs: Inputs, start: Gradients) -> Call:
        arguments, asked = self._requiring_gradients(inputs)

        def call() -> tuple[Any, ...]:
            results = leaves(function(*arguments))
            return *(result.detach() for result in results), *torch.autograd.grad(tuple(results), asked, start)

        return call

    def _requiring_gradients(self, inputs: Inputs) -> tuple[list[Any], list[torch.Tensor]]:
        """The arguments, and those of them that require gradients."""
        floating = [i for i, each in enumerate(inputs) if isinstance(each, torch.Tensor) and each.is_floating_point()]
        differentiated = floating if self._differentiated is None else list(self._differentiated)
        arguments = [each.detach().requires_grad_() if i in differentiated else each for i, each in enumerate(inputs)]
        return arguments, [arguments[i] for i in differentiated]


def make_gradients(
    operation: Operation, point: SweepPoint, inputs: Sequence[Inputs], pool: TensorPool
) -> list[Gradients]:
    """Cotangents for the backward passes: ones for a scalar result, random values for others."""
    if point.mode == "fwd":
        return [()] * len(inputs)
    with torch.no_grad():
        shapes = [(tuple(result.shape), result.dtype) for result in leaves(operation.reference(*inputs[0]))]
    made: list[list[torch.Tensor]] = [
        pool.normal(f"gradient {place}", shape, dtype, len(inputs))
        if shape
        else [torch.ones((), dtype=dtype, device=pool.device)] * len(inputs)
        for place, (shape, dtype) in enumerate(shapes)
    ]
    return list(zip(*made, strict=True))
