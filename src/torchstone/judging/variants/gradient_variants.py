"""Hidden variants of a backward call: cotangents in other memory or missing, gradients for some arguments only.

After ``loss.sum().backward()`` the cotangent is one number, expanded to the shape of the result. After a transposition
it is a transposed tensor. A result that is not used has no cotangent. Frozen weights need no gradient. In a stated case
(as the suite gives it) cotangents are contiguous, and all arguments need gradients.

With an expanded cotangent the gradient may consist of rounding errors only, as in softmax, whose gradients add up to
zero. Comparison with float64 shows this: torch's result has no correct digit. Such variants are not used.
"""

from __future__ import annotations

import random

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS, Evaluator, ReferenceFailure, is_continuous
from torchstone.errors import UsageError
from torchstone.gradient_operators import REQUESTED_GRADIENTS
from torchstone.judging.reference.float64 import exact_results
from torchstone.judging.variants.memory import on_other_memory

_MOST_WITHOUT_DIGITS = 1 / 16
"""Largest share of a result's elements without a correct digit: terms may cancel by chance."""
_NO_DIGIT_ERROR = 0.25
"""Relative error above which an element has no correct digit."""
_OTHER_MEMORY_PROBABILITY = 0.5
"""Probability that a cotangent of two or more dimensions is moved to other memory instead of expanded."""
_CPU = torch.device("cpu")


def with_varied_cotangents(case: schema.Case, random_: random.Random, *, frozen: bool) -> schema.Case:
    """The case with cotangents in other memory, some perhaps missing; ``frozen``: gradients for some arguments only."""
    cotangents, *others = case.args
    assert isinstance(cotangents, schema.Sequence), "a gradient's first argument is a list"
    varied = msgspec.structs.replace(
        case, args=(schema.Sequence(_varied_cotangents(cotangents.items, random_)), *others)
    )
    return with_some_gradients(varied, random_) if frozen else _with_all_gradients(varied)


def with_expanded_cotangents(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with cotangents expanded: most along all dimensions, others along some or none, at random."""
    cotangents, *others = case.args
    assert isinstance(cotangents, schema.Sequence), "a gradient's first argument is a list"
    items = tuple(_expanded(item, random_) if isinstance(item, schema.Tensor) else item for item in cotangents.items)
    return msgspec.structs.replace(case, args=(schema.Sequence(items), *others))


def with_some_gradients(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with gradients requested for some arguments only, if several arguments can have one."""
    plain = _with_all_gradients(case)
    differentiable = _differentiable_count(schema.tensors_of(msgspec.structs.replace(plain, args=plain.args[1:])))
    if differentiable < 2:
        return plain
    requested = sorted(random_.sample(range(differentiable), random_.randrange(1, differentiable)))
    places = schema.Sequence(tuple(schema.Scalar(place) for place in requested))
    return msgspec.structs.replace(plain, kwargs={**plain.kwargs, REQUESTED_GRADIENTS: places})


def _with_all_gradients(case: schema.Case) -> schema.Case:
    kwargs = {name: argument for name, argument in case.kwargs.items() if name != REQUESTED_GRADIENTS}
    return msgspec.structs.replace(case, kwargs=kwargs)


def has_correct_digits(case: schema.Case, seed: int) -> bool:
    """Whether torch accepts the case, and its results are more than rounding errors."""
    call = draw_call(case, seed, _CPU)
    evaluator = Evaluator(case, _CPU)
    try:
        found = evaluator.native([call])
        exact = exact_results(evaluator, call)
    except (*OPERATOR_ERRORS, ReferenceFailure, UsageError):
        return False
    if found is None or found.tensors.keys() != exact.keys():
        return False
    return all(_has_correct_digits(tensor[0], exact[place]) for place, tensor in found.tensors.items())


def _has_correct_digits(native: torch.Tensor, exact: torch.Tensor) -> bool:
    if native.shape != exact.shape:
        return False
    if not is_continuous(native.dtype) or not native.numel():
        return True
    wrong = (native.to(exact.dtype) - exact).abs() > _NO_DIGIT_ERROR * exact.abs()
    return float(wrong.double().mean()) <= _MOST_WITHOUT_DIGITS


def _varied_cotangents(cotangents: tuple[schema.Argument, ...], random_: random.Random) -> tuple[schema.Argument, ...]:
    """The cotangents of all results or of at least one, each in other memory; None for the others."""
    given = [place for place, item in enumerate(cotangents) if isinstance(item, schema.Tensor)]
    kept = random_.sample(given, random_.randrange(1, len(given) + 1)) if random_.random() < 0.5 else given
    return tuple(
        _in_another_layout(item, random_) if isinstance(item, schema.Tensor) and place in kept else schema.Scalar(None)
        for place, item in enumerate(cotangents)
    )


def _in_another_layout(cotangent: schema.Tensor, random_: random.Random) -> schema.Tensor:
    """The cotangent in another layout that training produces.

    It is expanded along all dimensions, as by a sum, or along some, as by a mean over rows. Or it lies in other memory,
    as after a transposition or a concatenation.
    """
    if len(cotangent.shape) > 1 and random_.random() < _OTHER_MEMORY_PROBABILITY:
        return on_other_memory(cotangent, random_, scattered=True)
    return _expanded(cotangent, random_)


def _expanded(cotangent: schema.Tensor, random_: random.Random) -> schema.Tensor:
    rank = len(cotangent.shape)
    count = random_.choice((rank, rank, random_.randint(0, rank)))
    chosen = random_.sample(range(rank), count)
    plain = operators.contiguous_strides([1 if d in chosen else size for d, size in enumerate(cotangent.shape)])
    steps = tuple(0 if dimension in chosen else step for dimension, step in enumerate(plain))
    return msgspec.structs.replace(cotangent, strides=steps, offset=0) if chosen else cotangent


def _differentiable_count(recipes: tuple[schema.Tensor, ...]) -> int:
    return sum(is_continuous(operators.torch_dtype(recipe.dtype)) for recipe in recipes)
