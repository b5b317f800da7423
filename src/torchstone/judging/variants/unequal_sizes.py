"""Hidden variants with unequal sizes where the given case has equal ones: a kernel may work for square matrices only.

The operator decides which dimensions must agree. No table of operators is needed: ways to separate the places of one
size are tried on torch's own operator, on zeros first, which takes microseconds. (Not on tensors without memory: many
operators are written in Python there, and import torch's compiler.)

A case that torch accepts is separated further, so that one variant has as few equal sizes as possible. Numbers that
equal the size follow either part, and ranges of indices are the smaller of the two. No part has a size of one, which
would broadcast. If a list has one number several times (strides, paddings), one of them changes, if torch takes that.

Operators that torch calls only internally leave shape checks to their callers, and would read beside their memory.
These are tried only

- where nothing has to agree: one tensor, and no number that equals the size;
- where each item of a list is processed separately;
- where torch's iterators check: pointwise operators;
- where the operator's decomposition, which does check, takes the same shapes.

``out=`` is left alone too, because it would get another shape.
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

_MOST_TRIES = 32
_MOST_OF_A_SIZE = 16
_ONE_SIZE_ONLY = 0.125
"""Probability that only one size is separated: a kernel may be wrong for that and right where all sizes differ."""
_FEW_PLACES = 5
"""Up to this many places of one size, all ways to separate them are tried; of more places the likely ways first."""
_WAYS_OF_A_LIST = 4
_CPU = torch.device("cpu")


class SizePosition(NamedTuple):
    """A dimension of a tensor argument, or (-1) a number among the arguments."""

    argument: int
    """Which tensor, or which number."""
    dimension: int


class Parting(NamedTuple):
    """One way to give some of the places of a size another one."""

    size: int
    places: frozenset[SizePosition]


def uneven(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """A variant with unequal sizes that torch accepts on zeros; empty if no size comes twice or none is accepted."""
    if "out" in case.operator.rsplit(".", 1)[-1] or not any(0 not in t.shape for t in schema.tensors_of(case)):
        return []  # torch accepts any shape of empty tensors
    found = _parted_as_far_as_possible(case, random_, 1 if random_.random() < _ONE_SIZE_ONLY else _MOST_TRIES)
    found = _with_uneven_lists(found, random_)
    return [found] if found != case else []


def _with_uneven_lists(case: schema.Case, random_: random.Random) -> schema.Case:
    """In each list of whole numbers, one that comes twice changed by one, as far as torch takes it.

    Not where scales are stated beside the sizes that they make: torch believes both (:func:`with_another_scale`).
    """
    if _scales(case):
        return case
    for place, argument in enumerate(case.args):
        ways = _uneven_ways(argument)
        for other in random_.sample(ways, min(_WAYS_OF_A_LIST, len(ways))):
            option = msgspec.structs.replace(case, args=(*case.args[:place], other, *case.args[place + 1 :]))
            if _is_taken(option, with_numbers=True):
                case = option
                break
    return case


def _uneven_ways(argument: schema.Argument) -> list[schema.Argument]:
    """The list with one more, or less, of a number that it has several times."""
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
    """Of causal attention: keys and values for another number of places than queries have, once more and once fewer.

    :func:`uneven` has one of them by chance, and a mask that is aligned with the wrong end is right in the other.
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
    """One more of the results along one dimension, and the scale that makes it so, where scales are stated."""
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
    return option if _takes_zeros(option) else case


def _parted_as_far_as_possible(case: schema.Case, random_: random.Random, most: int) -> schema.Case:
    """The case separated at most ``most`` times."""
    tries = _MOST_TRIES
    refused: set[int] = set()
    while sizes := [size for size in _repeated(case) if size not in refused]:
        size = random_.choice(sizes)
        refused.add(size)
        for parting in itertools.islice(_partings(case, size, random_), _MOST_OF_A_SIZE):
            option = parted(case, parting, _two_sizes(size, random_))
            tries -= 1
            if _is_taken(option, with_numbers=any(place.dimension < 0 for place in _places(case)[size])):
                case, most = option, most - 1
                refused.discard(size)
                break
            if not tries:
                break
        if not most or not tries:
            break
    return case


def _is_taken(case: schema.Case, *, with_numbers: bool) -> bool:
    """Whether torch accepts the case on zeros, and it is safe to try: internal operators do not check shapes."""
    if not _keys_go_with_values(case):
        return False
    traits = operators.traits(case.operator)
    if traits.pointwise or not (traits.is_internal or traits.is_backward):
        return _takes_zeros(case)
    if with_numbers or traits.is_backward:
        return False
    if traits.does_items_apart or len(schema.tensors_of(case)) == 1:
        return _takes_zeros(case)
    return _is_made_of_what_takes_it(case) and _takes_zeros(case)


def _keys_go_with_values(case: schema.Case) -> bool:
    """Whether attention has as many keys as values, and the same heads: torch does not check that.

    With fewer values than keys it reads beside its memory. Fewer heads for keys it takes for grouped queries.
    """
    if not operators.traits(case.operator).attends:
        return True
    shapes = [recipe.shape for recipe in schema.tensors_of(case)[:3]]
    return len(shapes) < 3 or (shapes[1][:-1] == shapes[2][:-1] and shapes[0][:-2] == shapes[1][:-2])


def _is_made_of_what_takes_it(case: schema.Case) -> bool:
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


def _takes_zeros(case: schema.Case) -> bool:
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


def _repeated(case: schema.Case) -> list[int]:
    """Sizes that more than one dimension has."""
    return [size for size, found in _places(case).items() if size > 1 and sum(p.dimension >= 0 for p in found) > 1]


def _partings(case: schema.Case, size: int, random_: random.Random) -> Iterator[Parting]:
    """Ways to part the places of a size, in any order; of many places the likely ones first."""
    places = _places(case)[size]
    first, *others = places
    if len(places) <= _FEW_PLACES:
        chosen = [set(some) for count in range(len(others)) for some in itertools.combinations(others, count)]
        ways = [{first, *some} for some in chosen]
    else:
        ways = [way for way in _likely(case, places) if 0 < len(way) < len(places)]
    yield from (Parting(size, frozenset(way)) for way in random_.sample(ways, len(ways)))
    while len(places) > _FEW_PLACES:
        way = {place for place in places if random_.random() < 0.5}
        if 0 < len(way) < len(places):
            yield Parting(size, frozenset(way))


def _likely(case: schema.Case, places: Sequence[SizePosition]) -> list[set[SizePosition]]:
    """A single place, all with the same dimension or of the same tensor or of the same items of lists."""
    items = _items(case)
    dimensions = [place for place in places if place.dimension >= 0]
    numbers = {place for place in places if place.dimension < 0}
    ways = [{place} for place in dimensions]
    ways += [{p for p in dimensions if p.dimension == d} for d in {p.dimension for p in dimensions}]
    ways += [{p for p in dimensions if p.argument == a} for a in {p.argument for p in dimensions}]
    ways += [{p for p in dimensions if items[p.argument] == item} for item in {items[p.argument] for p in dimensions}]
    return [each for way in ways for each in ([way, way | numbers] if numbers else [way])]


def _items(case: schema.Case) -> list[int]:
    """For each tensor, which one of its list it is; 0: of none, or the first."""
    found: list[int] = []
    for argument in (*case.args, *case.kwargs.values()):
        found += range(operators.tensor_count(argument))
    return found


def parted(case: schema.Case, parting: Parting, sizes: tuple[int, int]) -> schema.Case:
    """The size is one of ``sizes`` in the places of the parting and the other in the rest."""
    inside, outside = sizes
    numbers = tensors = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal numbers, tensors
        match argument:
            case schema.Tensor(shape=shape, fill=fill):
                tensors += 1
                here = [SizePosition(tensors, dimension) in parting.places for dimension in range(len(shape))]
                new = tuple(
                    (inside if own else outside) if size == parting.size else size
                    for size, own in zip(shape, here, strict=True)
                )
                if isinstance(fill, schema.Integers | schema.SortedIntegers):
                    reaches_further = fill.low < min(sizes) < fill.high <= parting.size
                    fill = msgspec.structs.replace(fill, high=min(sizes)) if reaches_further else fill
                return msgspec.structs.replace(argument, shape=new, strides=None, offset=0, fill=fill)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case schema.Scalar(value=int() as value) if value == parting.size and not isinstance(value, bool):
                numbers += 1
                return schema.Scalar(inside if SizePosition(numbers, -1) in parting.places else outside)
            case _:
                return argument

    args = tuple(change(argument) for argument in case.args)
    kwargs = {key: change(argument) for key, argument in case.kwargs.items()}
    return with_enumeration_arguments_of(case, msgspec.structs.replace(case, args=args, kwargs=kwargs))


def _places(case: schema.Case) -> Mapping[int, list[SizePosition]]:
    """Size -> where it stands. Numbers are counted among those that equal the same size."""
    found: dict[int, list[SizePosition]] = {}
    for position, tensor in enumerate(schema.tensors_of(case)):
        for dimension, size in enumerate(tensor.shape):
            found.setdefault(size, []).append(SizePosition(position, dimension))
    for number in _numbers((*case.args, *case.kwargs.values())):
        if number in found:
            count = sum(place.dimension < 0 for place in found[number])
            found[number].append(SizePosition(count, -1))
    return found


def _numbers(arguments: tuple[schema.Argument, ...]) -> list[int]:
    numbers: list[int] = []
    for argument in arguments:
        match argument:
            case schema.Sequence(items=items):
                numbers += _numbers(items)
            case schema.Scalar(value=int() as value) if not isinstance(value, bool):
                numbers.append(value)
            case _:
                pass
    return numbers
