"""Hidden variants of a backward call: other memory of the cotangents, missing ones, few arguments that require grad.

``loss.sum().backward()`` hands a backward pass one number, expanded to the shape of the result. A transposition hands
it a transposed tensor. Of several results only some are used. Frozen weights request no gradient. In a stated case (as
the suite gives it) cotangents are contiguous, and all arguments request gradients.

An expanded cotangent may leave nothing but rounding errors, as in softmax, whose gradients add up to zero. Float64
shows this: torch's own result then has no correct digit. Such variants are not used.
"""

from __future__ import annotations

import random

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS, Evaluator, ReferenceFailure, is_continuous
from torchstone.errors import UsageError
from torchstone.gradient_operators import ASKING
from torchstone.judging.reference.float64 import exact_results
from torchstone.judging.variants.memory import on_other_memory

_MOST_ROUNDING_ERRORS = 1 / 16
"""Share of a result's elements that may be rounding errors only: differences that cancel by chance."""
_NO_DIGIT = 0.25
_TURNED = 0.5
_CPU = torch.device("cpu")


def otherwise_differentiated(case: schema.Case, random_: random.Random, *, frozen: bool) -> schema.Case:
    """With cotangents on other memory, or missing for some results; ``frozen``: some arguments request no gradient."""
    cotangents, *others = case.args
    assert isinstance(cotangents, schema.Sequence), "a gradient's first argument is a list"
    counted = msgspec.structs.replace(case, args=(schema.Sequence(_counting(cotangents.items, random_)), *others))
    return asked_by_some(counted, random_) if frozen else _asked_by_all(counted)


def with_expanded_cotangents(case: schema.Case, random_: random.Random) -> schema.Case:
    """With every cotangent expanded, along some of its dimensions at least."""
    cotangents, *others = case.args
    assert isinstance(cotangents, schema.Sequence), "a gradient's first argument is a list"
    items = tuple(_expanded(item, random_) if isinstance(item, schema.Tensor) else item for item in cotangents.items)
    return msgspec.structs.replace(case, args=(schema.Sequence(items), *others))


def asked_by_some(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with gradients requested for some arguments only, if several can have one."""
    plain = _asked_by_all(case)
    floating = _floating(schema.tensors_of(msgspec.structs.replace(plain, args=plain.args[1:])))
    if floating < 2:
        return plain
    asking = sorted(random_.sample(range(floating), random_.randrange(1, floating)))
    places = schema.Sequence(tuple(schema.Scalar(place) for place in asking))
    return msgspec.structs.replace(plain, kwargs={**plain.kwargs, ASKING: places})


def _asked_by_all(case: schema.Case) -> schema.Case:
    kwargs = {name: argument for name, argument in case.kwargs.items() if name != ASKING}
    return msgspec.structs.replace(case, kwargs=kwargs)


def has_digits(case: schema.Case, seed: int) -> bool:
    """Whether torch takes the case, and its results are more than rounding errors."""
    call = draw_call(case, seed, _CPU)
    evaluator = Evaluator(case, _CPU)
    try:
        found = evaluator.native([call])
        exact = exact_results(evaluator, call)
    except (*OPERATOR_ERRORS, ReferenceFailure, UsageError):
        return False
    if found is None or found.tensors.keys() != exact.keys():
        return False
    return all(_has_digits(tensor[0], exact[place]) for place, tensor in found.tensors.items())


def _has_digits(native: torch.Tensor, exact: torch.Tensor) -> bool:
    if native.shape != exact.shape:
        return False
    if not is_continuous(native.dtype) or not native.numel():
        return True
    off = (native.to(exact.dtype) - exact).abs() > _NO_DIGIT * exact.abs()
    return float(off.double().mean()) <= _MOST_ROUNDING_ERRORS


def _counting(cotangents: tuple[schema.Argument, ...], random_: random.Random) -> tuple[schema.Argument, ...]:
    """The cotangents of all results or of some, at least one, each on other memory; None for the others."""
    given = [place for place, item in enumerate(cotangents) if isinstance(item, schema.Tensor)]
    kept = random_.sample(given, random_.randrange(1, len(given) + 1)) if random_.random() < 0.5 else given
    return tuple(
        _otherwise_laid(item, random_) if isinstance(item, schema.Tensor) and place in kept else schema.Scalar(None)
        for place, item in enumerate(cotangents)
    )


def _otherwise_laid(cotangent: schema.Tensor, random_: random.Random) -> schema.Tensor:
    """The cotangent in another layout that training produces.

    Expanded to the whole shape, as by a sum, or along some of its dimensions, as by a mean over rows. Or on other
    memory, as after a transposition or a concatenation.
    """
    if len(cotangent.shape) > 1 and random_.random() < _TURNED:
        return on_other_memory(cotangent, random_, scattered=True)
    return _expanded(cotangent, random_)


def _expanded(cotangent: schema.Tensor, random_: random.Random) -> schema.Tensor:
    rank = len(cotangent.shape)
    count = random_.choice((rank, rank, random_.randint(0, rank)))
    chosen = random_.sample(range(rank), count)
    plain = operators.contiguous_strides([1 if d in chosen else size for d, size in enumerate(cotangent.shape)])
    steps = tuple(0 if dimension in chosen else step for dimension, step in enumerate(plain))
    return msgspec.structs.replace(cotangent, strides=steps, offset=0) if chosen else cotangent


def _floating(recipes: tuple[schema.Tensor, ...]) -> int:
    return sum(is_continuous(operators.torch_dtype(recipe.dtype)) for recipe in recipes)
