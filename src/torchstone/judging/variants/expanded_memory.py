"""Hidden variants with expanded arguments (stride 0): one slice in memory that is read as many.

Models often make such arguments (masks, positions, states of a beam search), and a kernel that assumes distinct memory
for each slice is wrong for them. But a reduction over identical elements gives only rounding errors. So a dimension is
expanded only if the operator treats each slice of it alike and separately. An experiment with torch's operator tells:
if everything but one slice changes, the same slice of each result must stay the same. The first and the last slice are
tried, because a running sum leaves one of them unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS, is_continuous
from torchstone.calls.resizing import mapped, strides_like
from torchstone.errors import UsageError
from torchstone.judging.same_values import elementwise_same, same
from torchstone.judging.variants.memory import FILLS_PER_ELEMENT

_MOST_TRIES = 4
_SEED = 1
"""Seed of the trial calls. The answer is remembered, so it must not depend on which job asks first."""
_LEAST_ELEMENTS = 16
"""Least elements of a slice of integer or boolean results: fewer stay the same by chance."""
_FEW = 8
"""Sizes below this are told apart when an answer is remembered; larger ones share it."""
_ROUNDING = 2.0**-5
"""Difference that another order of summation may cause, as a share of the largest element of a result."""
_REMEMBERED = 1 << 14
_CPU = torch.device("cpu")


class ArgumentDimension(NamedTuple):
    """A dimension of a tensor argument."""

    argument: int
    dimension: int


def expanded(case: schema.Case, random_: random.Random) -> schema.Case | None:
    """The case with one dimension of an argument expanded, or several; None where the experiment does not allow it.

    Pointwise operators get expanded arguments with other layouts (:mod:`torchstone.judging.variants.memory`). Views
    compute nothing, operators that are given strides (``as_strided_copy``) have their own, and random results do not
    repeat.
    """
    traits = operators.traits(case.operator)
    if traits.pointwise or traits.may_draw or traits.takes_strides or operators.is_view(case.operator):
        return None
    places = _places(case)
    found: list[ArgumentDimension] = []
    for place in random_.sample(places, min(_MOST_TRIES, len(places))):
        wanted = random_.random() < 0.5
        if (wanted or not found) and _is_apart(case, place):
            found.append(place)
    return _with(case, frozenset(found)) if found else None


def is_read_by_its_strides(case: schema.Case, seed: int) -> bool:
    """Whether torch itself accepts the case, and gives the same as on contiguous memory.

    Some of its operators ignore the stride 0 of an expanded bias (group norm on the CPU) and read what lies behind it.
    """
    drawn = draw_call(case, seed, _CPU).tensors
    followed = [
        operators.view_of(torch.cat([each.storage, _other_values(each.recipe, seed).flatten()]), each.recipe)
        if each.recipe.strides is not None and 0 in each.recipe.strides
        else each.view.clone()
        for each in drawn
    ]
    try:
        plain = _results(case, [each.view for each in drawn])
        return all(_is_near(*pair) for pair in zip(_called(case, followed), plain, strict=True))
    except (*OPERATOR_ERRORS, UsageError):
        return False


def _places(case: schema.Case) -> list[ArgumentDimension]:
    """Dimensions that may be expanded: those with several slices, of arguments that are only read."""
    written = operators.contract_of(case).mutated
    return [
        ArgumentDimension(position, dimension)
        for position, recipe in enumerate(schema.tensors_of(case))
        if position not in written and isinstance(recipe.fill, FILLS_PER_ELEMENT) and 0 not in recipe.shape
        for dimension, size in enumerate(recipe.shape)
        if size > 1 and (recipe.strides is None or recipe.strides[dimension])
    ]


def _with(case: schema.Case, places: frozenset[ArgumentDimension]) -> schema.Case:
    positions = iter(range(len(schema.tensors_of(case))))

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(shape=shape, strides=strides):
                position = next(positions)
                dimensions = [place.dimension for place in places if place.argument == position]
                if not dimensions:
                    return argument
                before = strides if strides is not None else operators.contiguous_strides(shape)
                steps = tuple(0 if dimension in dimensions else step for dimension, step in enumerate(before))
                return msgspec.structs.replace(argument, strides=strides_like(steps, shape))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


# Asking torch.


class _Question(NamedTuple):
    """The question whether slices are treated separately. Equal for cases that differ only in how large sizes are."""

    form: tuple[object, ...]
    place: ArgumentDimension
    case: _Unseen


class _Unseen:
    """A case to experiment with. All compare equal, so that a remembered answer of one holds for others of its form."""

    def __init__(self, case: schema.Case) -> None:
        self.case = case

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unseen)

    def __hash__(self) -> int:
        return 0


def _is_apart(case: schema.Case, place: ArgumentDimension) -> bool:
    return _answer(_Question(tuple(_form(case)), place, _Unseen(case)))


def _form(case: schema.Case) -> Iterator[object]:
    """The case without its sizes: which of them are equal, to one another and to numbers, and which are small."""
    yield case.operator
    yield case.model
    names: dict[int, int] = {}
    for recipe in schema.tensors_of(case):
        yield recipe.dtype
        yield tuple(size if size < _FEW else names.setdefault(size, _FEW + len(names)) for size in recipe.shape)
    for argument in (*case.args, *case.kwargs.items()):
        yield _plain_form(argument, names)


def _plain_form(argument: object, names: dict[int, int]) -> object:
    match argument:
        case schema.Tensor():
            return "tensor"
        case schema.Scalar(value=int() as value):
            return argument, names.get(value)
        case schema.Sequence(items=items) | tuple(items):
            return tuple(_plain_form(item, names) for item in items)
        case _:
            return argument


@lru_cache(maxsize=_REMEMBERED)
def _answer(question: _Question) -> bool:
    try:
        return _ask(question.case.case, question.place)
    except (*OPERATOR_ERRORS, UsageError):
        return False


def _ask(case: schema.Case, place: ArgumentDimension) -> bool:
    recipe = schema.tensors_of(case)[place.argument]
    last = recipe.shape[place.dimension] - 1
    views = [drawn.view for drawn in draw_call(case, _SEED, _CPU).tensors]
    own = views[place.argument]
    usual = _results(case, views)
    for kept in (0, last):
        values = _other_values(recipe, seed=_SEED + 1 + kept)
        values.select(place.dimension, kept).copy_(own.select(place.dimension, kept))
        if not (values != own).any(place.dimension).all():
            return False  # the values did not change everywhere else
        changed = _results(case, [*views[: place.argument], values, *views[place.argument + 1 :]])
        if not all(_stays(*pair, kept, last + 1) for pair in zip(usual, changed, strict=True)):
            return False
    return True


def _other_values(recipe: schema.Tensor, seed: int) -> torch.Tensor:
    """Other valid values of the recipe, without the runs of equal values that drawn calls have."""
    source = torch.Generator().manual_seed(seed)
    values = torch.empty(recipe.shape, dtype=operators.torch_dtype(recipe.dtype))
    match recipe.fill:
        case schema.Normal(mean=mean, std=std):
            return values.normal_(mean, std, generator=source)
        case schema.Uniform(low=low, high=high):
            return values.uniform_(low, high, generator=source)
        case schema.Integers(low=low, high=high):
            return values.random_(low, high, generator=source)
        case _:
            return values.bernoulli_(0.5, generator=source)


def _results(case: schema.Case, views: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a call on plain copies of these returns and writes to."""
    return _called(case, [view.clone(memory_format=torch.contiguous_format) for view in views])


def _called(case: schema.Case, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    args, kwargs = operators.build_arguments(case, tensors, _CPU)
    with torch.no_grad():
        leaves = operators.flatten_outputs(operators.resolve(case.operator)(*args, **kwargs))
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return found + [tensors[position] for position in sorted(operators.contract_of(case).mutated)]


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are equal but for rounding errors."""
    if one.shape != other.shape or not is_continuous(one.dtype) or same(one, other):
        return one.shape == other.shape and same(one, other)
    largest = other.abs().nan_to_num(0.0, 0.0, 0.0).amax()
    off = torch.where(elementwise_same(one, other), 0.0, (one - other).abs())
    return bool((off <= _ROUNDING * largest).all())


def _stays(usual: torch.Tensor, changed: torch.Tensor, kept: int, size: int) -> bool:
    """Whether a result does not change at all, or along some dimension does not change at the kept slice."""
    if usual.shape != changed.shape:
        return False
    if same(usual, changed):
        return True
    apart = [
        dimension
        for dimension, length in enumerate(usual.shape)
        if length == size and same(usual.select(dimension, kept), changed.select(dimension, kept))
    ]
    return bool(apart) and (is_continuous(usual.dtype) or usual.numel() // size >= _LEAST_ELEMENTS)
