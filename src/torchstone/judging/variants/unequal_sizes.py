"""Hidden variants with unequal sizes where the given case has equal ones: a kernel may work for square matrices only.

A split divides the dimensions and integer arguments of one size into two groups, and gives one group another size. The
operator decides which of them must stay equal. No table of operators is needed: splits are tried on torch's own
operator, on zeros, which takes microseconds. (Meta tensors are not used: many operators are written in Python there,
and import torch's compiler.)

A split that torch accepts is split further, so that one variant has as few equal sizes as possible. Index ranges get
the smaller of the two sizes. No group gets size 1, which would broadcast. In a list with repeated integers (strides,
paddings), one of them changes, if torch accepts that.

Operators that torch calls only internally leave shape checks to their callers, and could read out of bounds. These are
tried only if one of these holds:

- no sizes must agree: there is one tensor, and no integer argument equals the size;
- each item of a list is processed separately;
- torch's iterators check shapes: pointwise operators;
- the operator's decomposition, which does check, accepts the same shapes.

Operators with ``out=`` get no such variants, because the argument would get another shape.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.enumeration_arguments import with_enumeration_arguments_of
from torchstone.calls.reference_calls import OPERATOR_ERRORS

_MOST_TRIES_PER_VARIANT = 32
"""Most splits that are tried, and made, for one variant."""
_MOST_TRIES_PER_SIZE = 16
"""Most splits that are tried for one size."""
_ONE_SPLIT_PROBABILITY = 0.125
"""Probability of only one split: a kernel may be wrong then and right where all sizes differ."""
_FEW_POSITIONS = 5
"""Up to this many positions of one size, all splits may be tried; for more, the likely ones come first."""
_MOST_TRIES_PER_LIST = 4
"""Most changed forms of one list that are tried."""
_CPU = torch.device("cpu")


class SizePosition(NamedTuple):
    """Where a case has a size: a dimension of a tensor argument, or an integer argument that equals it."""

    argument: int
    """Index of the tensor, or of the integer among those that equal the size."""
    dimension: int
    """-1 for an integer."""


class Split(NamedTuple):
    """A split: the positions of a size that form one of the two groups."""

    size: int
    places: frozenset[SizePosition]


def with_unequal_sizes(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """A variant with unequal sizes that torch accepts on zeros; empty if no size occurs twice or none is accepted."""
    if "out" in case.operator.rsplit(".", 1)[-1] or not any(0 not in t.shape for t in schema.tensors_of(case)):
        return []  # torch accepts any shape of empty tensors
    found = _split_repeatedly(
        case, random_, 1 if random_.random() < _ONE_SPLIT_PROBABILITY else _MOST_TRIES_PER_VARIANT
    )
    found = _with_unequal_lists(found, random_)
    return [found] if found != case else []


def _with_unequal_lists(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with one of the repeated integers of each list changed by one, as far as torch accepts that.

    Nothing changes if scales are stated beside sizes: torch does not check both (:func:`with_another_scale`).
    """
    if _scales(case):
        return case
    for place, argument in enumerate(case.args):
        ways = _uneven_lists(argument)
        for other in random_.sample(ways, min(_MOST_TRIES_PER_LIST, len(ways))):
            option = msgspec.structs.replace(case, args=(*case.args[:place], other, *case.args[place + 1 :]))
            if _is_accepted(option, with_numbers=True):
                case = option
                break
    return case


def _uneven_lists(argument: schema.Argument) -> list[schema.Argument]:
    """Forms of a list of integers in which one that occurs several times is one larger or one smaller."""
    if not isinstance(argument, schema.Sequence):
        return []
    numbers = [item.value if isinstance(item, schema.Scalar) else None for item in argument.items]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        return []
    return [
        schema.Sequence((*argument.items[:at], schema.Scalar(number + step), *argument.items[at + 1 :]))
        for at, number in enumerate(numbers)
        if isinstance(number, int) and numbers.count(number) > 1
        for step in ((1, -1) if number > 0 else (1,))
    ]


def more_and_fewer_keys(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """Causal attention with more keys and values than queries, and with fewer; empty for other operators.

    :func:`with_unequal_sizes` makes at most one of the two, and a mask aligned with the wrong end may be right
    in that one.
    """
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs))
    key, value = given.get("key"), given.get("value")
    if given.get("is_causal") != schema.Scalar(True) or not isinstance(key, schema.Tensor) or len(key.shape) < 2:
        return []
    queries = schema.tensors_of(case)[0].shape[-2]
    if not isinstance(value, schema.Tensor) or len(value.shape) < 2 or queries < 2:
        return []
    sizes = queries + random_.randint(1, queries), random_.randint(max(1, queries // 2), queries - 1)
    return [_with_keys(case, size) for size in sizes]


def _with_keys(case: schema.Case, size: int) -> schema.Case:
    def change(name: str, argument: schema.Argument) -> schema.Argument:
        if name not in ("key", "value") or not isinstance(argument, schema.Tensor):
            return argument
        shape = (*argument.shape[:-2], size, argument.shape[-1])
        return msgspec.structs.replace(argument, shape=shape, strides=None, offset=0)

    names = [name for name, _ in operators.named_arguments(case.operator, case.args, case.kwargs)]
    args = tuple(change(name, argument) for name, argument in zip(names, case.args, strict=False))
    kwargs = {name: change(name, argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _scales(case: schema.Case) -> list[str]:
    given = operators.named_arguments(case.operator, case.args, case.kwargs)
    return [name for name, value in given if name.startswith("scale") and value != schema.Scalar(None)]


def with_another_scale(case: schema.Case, random_: random.Random) -> schema.Case:
    """The case with one size of the result larger by one, and its scale changed to match; only if it states scales."""
    given, scales = dict(operators.named_arguments(case.operator, case.args, case.kwargs)), _scales(case)
    sizes = given.get("output_size")
    if not scales or not isinstance(sizes, schema.Sequence) or len(sizes.items) != len(scales):
        return case
    at = random_.randrange(len(scales))
    size, before = sizes.items[at], schema.tensors_of(case)[0].shape[at - len(scales)]
    if not isinstance(size, schema.Scalar) or not isinstance(size.value, int) or not before:
        return case
    more = schema.Scalar(size.value + 1)
    changed: dict[str, schema.Argument] = {
        "output_size": schema.Sequence((*sizes.items[:at], more, *sizes.items[at + 1 :])),
        scales[at]: schema.Scalar((size.value + 1) / before),
    }
    names = list(given)
    args = tuple(changed.get(names[place], argument) for place, argument in enumerate(case.args))
    kwargs = {name: changed.get(name, argument) for name, argument in case.kwargs.items()}
    option = msgspec.structs.replace(case, args=args, kwargs=kwargs)
    return option if _accepts_zeros(option) else case


def _split_repeatedly(case: schema.Case, random_: random.Random, most: int) -> schema.Case:
    """The case after at most ``most`` splits that torch accepts."""
    tries = _MOST_TRIES_PER_VARIANT
    refused: set[int] = set()
    while sizes := [size for size in _repeated_sizes(case) if size not in refused]:
        size = random_.choice(sizes)
        refused.add(size)
        for split in itertools.islice(_splits(case, size, random_), _MOST_TRIES_PER_SIZE):
            option = with_split(case, split, _two_sizes(size, random_))
            tries -= 1
            if _is_accepted(option, with_numbers=any(place.dimension < 0 for place in _positions_of_sizes(case)[size])):
                case, most = option, most - 1
                refused.discard(size)
                break
            if not tries:
                break
        if not most or not tries:
            break
    return case


def _is_accepted(case: schema.Case, *, with_numbers: bool) -> bool:
    """Whether torch accepts the case on zeros, and it is safe to try: internal operators do not check shapes."""
    if not _keys_match_values(case):
        return False
    traits = operators.traits(case.operator)
    if traits.pointwise or not (traits.is_internal or traits.is_backward):
        return _accepts_zeros(case)
    if with_numbers or traits.is_backward:
        return False
    if traits.does_items_apart or len(schema.tensors_of(case)) == 1:
        return _accepts_zeros(case)
    return _decomposition_accepts(case) and _accepts_zeros(case)


def _keys_match_values(case: schema.Case) -> bool:
    """Whether attention has as many keys as values, and the same heads: torch does not check that.

    With fewer values than keys it reads out of bounds. It treats fewer heads of keys as grouped queries.
    """
    if not operators.traits(case.operator).attends:
        return True
    shapes = [recipe.shape for recipe in schema.tensors_of(case)[:3]]
    return len(shapes) < 3 or (shapes[1][:-1] == shapes[2][:-1] and shapes[0][:-2] == shapes[1][:-2])


def _decomposition_accepts(case: schema.Case) -> bool:
    from torch._decomp import decomposition_table

    decomposed = decomposition_table.get(operators.resolve(case.operator))
    if decomposed is None or any(isinstance(t.fill, schema.Integers) for t in schema.tensors_of(case)):
        return False
    try:
        args, kwargs = operators.build_arguments(case, _zeros(case), _CPU)
        decomposed(*args, **kwargs)
    except Exception:  # noqa: BLE001 - decompositions refuse by many exceptions
        return False
    return True


def _zeros(case: schema.Case) -> list[torch.Tensor]:
    return [torch.zeros(recipe.shape, dtype=operators.torch_dtype(recipe.dtype)) for recipe in schema.tensors_of(case)]


def _accepts_zeros(case: schema.Case) -> bool:
    args, kwargs = operators.build_arguments(case, _zeros(case), _CPU)
    try:
        with torch.no_grad():
            operators.resolve(case.operator)(*args, **kwargs)
    except OPERATOR_ERRORS:
        return False
    return True


def _two_sizes(size: int, random_: random.Random) -> tuple[int, int]:
    other = random_.choice(list(range(max(2, size // 2), size)) or [size + 1])
    return (size, other) if random_.random() < 0.5 else (other, size)


def _repeated_sizes(case: schema.Case) -> list[int]:
    """Sizes above 1 that more than one dimension has."""
    return [
        size
        for size, found in _positions_of_sizes(case).items()
        if size > 1 and sum(p.dimension >= 0 for p in found) > 1
    ]


def _splits(case: schema.Case, size: int, random_: random.Random) -> Iterator[Split]:
    """Splits of the positions of a size, in random order; if there are many positions, likely splits come first."""
    places = _positions_of_sizes(case)[size]
    first, *others = places
    if len(places) <= _FEW_POSITIONS:
        chosen = [set(some) for count in range(len(others)) for some in itertools.combinations(others, count)]
        ways = [{first, *some} for some in chosen]
    else:
        ways = [way for way in _likely_splits(case, places) if 0 < len(way) < len(places)]
    yield from (Split(size, frozenset(way)) for way in random_.sample(ways, len(ways)))
    while len(places) > _FEW_POSITIONS:
        way = {place for place in places if random_.random() < 0.5}
        if 0 < len(way) < len(places):
            yield Split(size, frozenset(way))


def _likely_splits(case: schema.Case, places: Sequence[SizePosition]) -> list[set[SizePosition]]:
    """Groups: one position, or all of one dimension, of one tensor, or of one index in lists of tensors."""
    items = _positions_in_lists(case)
    dimensions = [place for place in places if place.dimension >= 0]
    numbers = {place for place in places if place.dimension < 0}
    ways = [{place} for place in dimensions]
    ways += [{p for p in dimensions if p.dimension == d} for d in {p.dimension for p in dimensions}]
    ways += [{p for p in dimensions if p.argument == a} for a in {p.argument for p in dimensions}]
    ways += [{p for p in dimensions if items[p.argument] == item} for item in {items[p.argument] for p in dimensions}]
    return [each for way in ways for each in ([way, way | numbers] if numbers else [way])]


def _positions_in_lists(case: schema.Case) -> list[int]:
    """For each tensor, its index in its list of tensors; 0 if it is in none."""
    found: list[int] = []
    for argument in (*case.args, *case.kwargs.values()):
        found += range(operators.tensor_count(argument))
    return found


def with_split(case: schema.Case, split: Split, sizes: tuple[int, int]) -> schema.Case:
    """The case with the first of ``sizes`` at the positions of the split, and the second at the others."""
    inside, outside = sizes
    numbers = tensors = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal numbers, tensors
        match argument:
            case schema.Tensor(shape=shape, fill=fill):
                tensors += 1
                in_group = [SizePosition(tensors, dimension) in split.places for dimension in range(len(shape))]
                new = tuple(
                    (inside if own else outside) if size == split.size else size
                    for size, own in zip(shape, in_group, strict=True)
                )
                if isinstance(fill, schema.Integers | schema.SortedIntegers):
                    reaches_further = fill.low < min(sizes) < fill.high <= split.size
                    fill = msgspec.structs.replace(fill, high=min(sizes)) if reaches_further else fill
                return msgspec.structs.replace(argument, shape=new, strides=None, offset=0, fill=fill)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case schema.Scalar(value=int() as value) if value == split.size and not isinstance(value, bool):
                numbers += 1
                return schema.Scalar(inside if SizePosition(numbers, -1) in split.places else outside)
            case _:
                return argument

    args = tuple(change(argument) for argument in case.args)
    kwargs = {key: change(argument) for key, argument in case.kwargs.items()}
    return with_enumeration_arguments_of(case, msgspec.structs.replace(case, args=args, kwargs=kwargs))


def _positions_of_sizes(case: schema.Case) -> Mapping[int, list[SizePosition]]:
    """Size -> its positions."""
    found: dict[int, list[SizePosition]] = {}
    for position, tensor in enumerate(schema.tensors_of(case)):
        for dimension, size in enumerate(tensor.shape):
            found.setdefault(size, []).append(SizePosition(position, dimension))
    for number in _integers_in((*case.args, *case.kwargs.values())):
        if number in found:
            count = sum(place.dimension < 0 for place in found[number])
            found[number].append(SizePosition(count, -1))
    return found


def _integers_in(arguments: tuple[schema.Argument, ...]) -> list[int]:
    numbers: list[int] = []
    for argument in arguments:
        match argument:
            case schema.Sequence(items=items):
                numbers += _integers_in(items)
            case schema.Scalar(value=int() as value) if not isinstance(value, bool):
                numbers.append(value)
            case _:
                pass
    return numbers
