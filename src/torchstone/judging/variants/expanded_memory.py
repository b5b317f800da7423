"""Hidden variants with expanded arguments (stride 0): all slices along a dimension share the same memory.

Models often make such arguments (masks, positions, states of a beam search). A kernel that assumes distinct memory for
each slice is wrong for them. But a reduction over identical elements gives only rounding errors. So a dimension is
expanded only if the operator treats its slices alike and separately. This is tested by calling torch's operator: if
everything but one slice changes, the same slice of each result must not change. The first and the last slice are
tested, because a running sum leaves one of them unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS, is_continuous
from torchstone.calls.resizing import mapped, strides_like
from torchstone.errors import UsageError
from torchstone.judging.same_values import elementwise_same, same
from torchstone.judging.variants.memory import FILLS_PER_ELEMENT

_MOST_TESTED_DIMENSIONS = 4
"""Most dimensions of a case that are tested."""
_SEED = 1
"""Seed of the test calls. The result is cached for all jobs, so it must not depend on which job comes first."""
_LEAST_SLICE_ELEMENTS = 16
"""Least elements of a slice of an integer or boolean result. A smaller slice may stay the same by chance."""
_SMALL_SIZE = 8
"""The cache key contains sizes below this. Of larger sizes it contains only which of them are equal."""
_ROUNDING_SHARE = 2.0**-5
"""Largest error that another order of summation may cause, as a share of the largest element of a result."""
_MOST_CACHED_RESULTS = 1 << 14
"""Most test results in the cache."""
_CPU = torch.device("cpu")


class ArgumentDimension(NamedTuple):
    """A dimension of a tensor argument."""

    argument: int
    dimension: int


def expanded(case: schema.Case, random_: random.Random) -> schema.Case | None:
    """The case with one or more dimensions of its arguments expanded; None if the test allows no dimension.

    Also None for pointwise operators (:mod:`torchstone.judging.variants.memory` expands their arguments), for views,
    for operators that take strides (``as_strided_copy``), and for random results, which do not repeat.
    """
    traits = operators.traits(case.operator)
    if traits.pointwise or traits.may_draw or traits.takes_strides or operators.is_view(case.operator):
        return None
    candidates = _expandable_dimensions(case)
    found: list[ArgumentDimension] = []
    for target in random_.sample(candidates, min(_MOST_TESTED_DIMENSIONS, len(candidates))):
        wanted = random_.random() < 0.5
        if (wanted or not found) and _has_separate_slices(case, target):
            found.append(target)
    return _with_expanded(case, frozenset(found)) if found else None


def respects_stride_zero(case: schema.Case, seed: int) -> bool:
    """Whether torch accepts the case and gives the same results as on contiguous memory.

    Some of torch's operators ignore the stride 0 of an expanded bias (group norm on the CPU) and read the memory after
    it. So other values are put there.
    """
    drawn = draw_call(case, seed, _CPU).tensors
    with_strides = [
        operators.view_of(torch.cat([each.storage, _other_values(each.recipe, seed).flatten()]), each.recipe)
        if each.recipe.strides is not None and 0 in each.recipe.strides
        else each.view.clone()
        for each in drawn
    ]
    try:
        plain = _results_on_copies(case, [each.view for each in drawn])
        return all(
            _are_equal_but_for_rounding(*pair) for pair in zip(_results_of(case, with_strides), plain, strict=True)
        )
    except (*OPERATOR_ERRORS, UsageError):
        return False


def _expandable_dimensions(case: schema.Case) -> list[ArgumentDimension]:
    """Dimensions that may be expanded: more than one slice, in an argument that the operator only reads."""
    written = operators.contract_of(case).mutated
    return [
        ArgumentDimension(position, dimension)
        for position, recipe in enumerate(schema.tensors_of(case))
        if position not in written and isinstance(recipe.fill, FILLS_PER_ELEMENT) and 0 not in recipe.shape
        for dimension, size in enumerate(recipe.shape)
        if size > 1 and (recipe.strides is None or recipe.strides[dimension])
    ]


def _with_expanded(case: schema.Case, candidates: frozenset[ArgumentDimension]) -> schema.Case:
    positions = iter(range(len(schema.tensors_of(case))))

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(shape=shape, strides=strides):
                position = next(positions)
                dimensions = [target.dimension for target in candidates if target.argument == position]
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


# The test with torch's operator.


class _CacheKey(NamedTuple):
    """Key of a cached test result. Equal for cases that differ only in large sizes."""

    form: tuple[object, ...]
    target: ArgumentDimension
    case: _IgnoredInKey


class _IgnoredInKey:
    """The case to test. All instances are equal, so that the cache key depends on the case's form only."""

    def __init__(self, case: schema.Case) -> None:
        self.case = case

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IgnoredInKey)

    def __hash__(self) -> int:
        return 0


def _has_separate_slices(case: schema.Case, target: ArgumentDimension) -> bool:
    return _cached_result(_CacheKey(tuple(_case_form(case)), target, _IgnoredInKey(case)))


def _case_form(case: schema.Case) -> Iterator[object]:
    """The case with each large size replaced by a number that says only which sizes and scalars equal it."""
    yield case.operator
    yield case.model
    names: dict[int, int] = {}
    for recipe in schema.tensors_of(case):
        yield recipe.dtype
        yield tuple(
            size if size < _SMALL_SIZE else names.setdefault(size, _SMALL_SIZE + len(names)) for size in recipe.shape
        )
    for argument in (*case.args, *case.kwargs.items()):
        yield _argument_form(argument, names)


def _argument_form(argument: object, names: dict[int, int]) -> object:
    match argument:
        case schema.Tensor():
            return "tensor"
        case schema.Scalar(value=int() as value):
            return argument, names.get(value)
        case schema.Sequence(items=items) | tuple(items):
            return tuple(_argument_form(item, names) for item in items)
        case _:
            return argument


@lru_cache(maxsize=_MOST_CACHED_RESULTS)
def _cached_result(key: _CacheKey) -> bool:
    try:
        return _test_slices(key.case.case, key.target)
    except (*OPERATOR_ERRORS, UsageError):
        return False


def _test_slices(case: schema.Case, target: ArgumentDimension) -> bool:
    recipe = schema.tensors_of(case)[target.argument]
    last = recipe.shape[target.dimension] - 1
    views = [drawn.view for drawn in draw_call(case, _SEED, _CPU).tensors]
    own_values = views[target.argument]
    original = _results_on_copies(case, views)
    for kept in (0, last):
        values = _other_values(recipe, seed=_SEED + 1 + kept)
        values.select(target.dimension, kept).copy_(own_values.select(target.dimension, kept))
        if not (values != own_values).any(target.dimension).all():
            return False  # the values did not change everywhere else
        changed = _results_on_copies(case, [*views[: target.argument], values, *views[target.argument + 1 :]])
        if not all(_keeps_slice(*pair, kept, last + 1) for pair in zip(original, changed, strict=True)):
            return False
    return True


def _other_values(recipe: schema.Tensor, seed: int) -> torch.Tensor:
    """Other values that the recipe allows, without the runs of equal values that drawn calls have."""
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


def _results_on_copies(case: schema.Case, views: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that a call on contiguous copies of these returns and writes to."""
    return _results_of(case, [view.clone(memory_format=torch.contiguous_format) for view in views])


def _results_of(case: schema.Case, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    args, kwargs = operators.build_arguments(case, tensors, _CPU)
    with torch.no_grad():
        leaves = operators.flatten_outputs(operators.resolve(case.operator)(*args, **kwargs))
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return found + [tensors[position] for position in sorted(operators.contract_of(case).mutated)]


def _are_equal_but_for_rounding(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are equal but for rounding errors."""
    if one.shape != other.shape or not is_continuous(one.dtype) or same(one, other):
        return one.shape == other.shape and same(one, other)
    largest = other.abs().nan_to_num(0.0, 0.0, 0.0).amax()
    off = torch.where(elementwise_same(one, other), 0.0, (one - other).abs())
    return bool((off <= _ROUNDING_SHARE * largest).all())


def _keeps_slice(original: torch.Tensor, changed: torch.Tensor, kept: int, size: int) -> bool:
    """Whether a result does not change at all, or along some dimension does not change at the kept slice."""
    if original.shape != changed.shape:
        return False
    if same(original, changed):
        return True
    unchanged_dimensions = [
        dimension
        for dimension, length in enumerate(original.shape)
        if length == size and same(original.select(dimension, kept), changed.select(dimension, kept))
    ]
    return bool(unchanged_dimensions) and (
        is_continuous(original.dtype) or original.numel() // size >= _LEAST_SLICE_ELEMENTS
    )
