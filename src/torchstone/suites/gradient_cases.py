"""Makes a test case of an operator's gradient from a test case of the operator.

A forward pass in torch shows how many results there are and which have a derivative. It runs on the meta device, or
with values on the CPU if the operator needs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import msgspec
import torch

from torchstone import operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.schema import Argument, Case, Normal, Scalar, Sequence, Tensor, gradient_operator, tensors_of

BACKWARD = "backward"
"""Tag of a case of a gradient."""
_CPU, _META = torch.device("cpu"), torch.device("meta")
_MOST_ELEMENTS = 1 << 22
"""Most elements of the arguments if a call must be made with values only to learn what it returns."""


class NoGradient(Exception):  # noqa: N818 - an answer
    """Why an operator, called like this, has no gradient to judge."""


def backward_cases(cases: Iterable[Case]) -> tuple[tuple[Case, ...], dict[str, int]]:
    """The gradients of these cases, and how many have none, by reason."""
    found: dict[str, Case] = {}
    without: dict[str, int] = {}
    for case in cases:
        try:
            gradient = backward_case(case)
        except NoGradient as reason:
            without[str(reason)] = without.get(str(reason), 0) + 1
        else:
            found.setdefault(gradient.key, gradient)
    return tuple(found.values()), without


def backward_case(case: Case) -> Case:
    """The case of the gradient. Raises :class:`NoGradient`."""
    if case.model is not None:
        raise NoGradient("gradients of whole models are not judged")
    overload = operators.resolve(case.operator)
    if overload._schema.is_mutable:
        raise NoGradient("the operator writes to its arguments")
    if operators.is_view(case.operator):
        raise NoGradient("the operator returns a view, whose gradient autograd computes itself")
    if torch.Tag.nondeterministic_seeded in overload.tags:
        raise NoGradient("the operator draws random numbers")
    if not any(operators.torch_dtype(tensor.dtype).is_floating_point for tensor in tensors_of(case)):
        raise NoGradient("no argument is floating-point")
    if _has_number_for_tensor(case):
        raise NoGradient("a number is given instead of a tensor, which torch accepts only in its own operators")
    cotangents = tuple(_cotangent(result) for result in _results(case))
    if all(isinstance(item, Scalar) for item in cotangents):
        raise NoGradient("no result has a derivative")
    return msgspec.structs.replace(
        case,
        operator=gradient_operator(case.operator),
        args=(Sequence(cotangents), *case.args),
        tags=(*case.tags, BACKWARD),
    )


def _has_number_for_tensor(case: Case) -> bool:
    declared = {argument.name: str(argument.type) for argument in operators.resolve(case.operator)._schema.arguments}
    given = operators.named_arguments(case.operator, case.args, case.kwargs)
    return any(
        declared[name] == "Tensor" and isinstance(argument, Scalar) and argument.value is not None
        for name, argument in given
    )


def _cotangent(result: Any) -> Argument:
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        return Scalar(None)
    return Tensor(tuple(result.shape), str(result.dtype).removeprefix("torch."), Normal())


def _results(case: Case) -> list[Any]:
    """The results of a forward pass in which every floating-point argument requires a gradient."""
    try:
        return _forward(case, _META)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:  # NotImplementedError is a RuntimeError
        if sum(operators.storage_extent(tensor) for tensor in tensors_of(case)) > _MOST_ELEMENTS:
            raise NoGradient("the shapes of its results depend on values, and it is too large to try them") from error
    try:
        return _forward(case, _CPU)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise NoGradient("torch cannot differentiate it here") from error


def _forward(case: Case, device: torch.device) -> list[Any]:
    if device.type == "meta":
        views = [_without_memory(recipe) for recipe in tensors_of(case)]
    else:
        views = [tensor.view for tensor in draw_call(case, 1, device).tensors]
    leaves = [
        view.detach().requires_grad_() if view.is_floating_point() or view.is_complex() else view for view in views
    ]
    args, kwargs = operators.build_arguments(case, leaves, device)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return operators.flatten_outputs(operators.resolve(case.operator)(*args, **kwargs))


def _without_memory(recipe: Tensor) -> torch.Tensor:
    dtype = operators.torch_dtype(recipe.dtype)
    storage = torch.empty(operators.storage_extent(recipe), dtype=dtype, device=_META)
    return operators.view_of(storage, recipe)
