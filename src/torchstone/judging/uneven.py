"""Variants in which sizes differ that are equal in the stated case: a kernel may be right for square matrices only.

Which dimensions must agree is a matter of the operator, and nothing here knows operators. So a few ways to part the
places of one size are tried on torch's own, on zeros first, which takes microseconds. (Not on tensors without memory:
many operators are written in Python there, and import torch's compiler.) Numbers that equal the size go with either
part, ranges of indices are the smaller of the two. No part has a size of one, which would broadcast.

Left alone is what torch calls only from within: such operators leave it to their callers to check that shapes go
together, and would read beside their memory. Likewise ``out=``, which would be given another shape.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.judging.evaluation import OPERATOR_ERRORS
from torchstone.judging.modes import with_modes_of

_MOST_TRIES = 24
_ENOUGH = 2
"""Of those that are taken."""
_CPU = torch.device("cpu")
_INTERNAL = ("_", "native_", "cudnn_", "miopen_", "mkldnn_", "mkl_", "slow_", "thnn_")


class Place(NamedTuple):
    """A dimension of a tensor argument, or (-1) a number among the arguments."""

    argument: int
    """Which tensor, or which number."""
    dimension: int


class Parting(NamedTuple):
    """One way to give some of the places of a size another one."""

    size: int
    places: frozenset[Place]


def uneven(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """A few with unequal sizes, as far as zeros can tell; none where no size comes twice."""
    found: list[schema.Case] = []
    for parting in _partings(case, random_):
        option = parted(case, parting, _two_sizes(parting.size, random_))
        if _takes_zeros(option):
            found.append(option)
        if len(found) == _ENOUGH:
            break
    return found


def _takes_zeros(case: schema.Case) -> bool:
    tensors = [
        torch.zeros(recipe.shape, dtype=operators.torch_dtype(recipe.dtype)) for recipe in schema.tensors_of(case)
    ]
    args, kwargs = operators.build_arguments(case, tensors, _CPU)
    try:
        with torch.no_grad():
            operators.resolve(case.operator)(*args, **kwargs)
    except OPERATOR_ERRORS:
        return False
    return True


def _two_sizes(size: int, random_: random.Random) -> tuple[int, int]:
    other = random_.choice(list(range(max(2, size // 2), size)) or [size + 1])
    return (size, other) if random_.random() < 0.5 else (other, size)


def _partings(case: schema.Case, random_: random.Random) -> list[Parting]:
    """Some to try, the most likely ones among them."""
    overload = case.operator.rsplit(".", 1)[-1]
    name = schema.forward_operator(case.operator).split(".")[1]
    if name.startswith(_INTERNAL) or "backward" in name or "out" in overload:
        return []
    places = _places(case)
    sizes = [size for size, found in places.items() if size > 1 and sum(p.dimension >= 0 for p in found) > 1]
    if not sizes:
        return []
    drawn = (_parting(size, places[size], random_) for size in random_.choices(sizes, k=_MOST_TRIES))
    return list(dict.fromkeys(parting for parting in drawn if 0 < len(parting.places) < len(places[parting.size])))


def parted(case: schema.Case, parting: Parting, sizes: tuple[int, int]) -> schema.Case:
    """The size is one of ``sizes`` in the places of the parting and the other in the rest."""
    inside, outside = sizes
    numbers = tensors = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal numbers, tensors
        match argument:
            case schema.Tensor(shape=shape, fill=fill):
                tensors += 1
                here = [Place(tensors, dimension) in parting.places for dimension in range(len(shape))]
                new = tuple(
                    (inside if own else outside) if size == parting.size else size
                    for size, own in zip(shape, here, strict=True)
                )
                if isinstance(fill, schema.Integers | schema.SortedIntegers) and fill.high == parting.size:
                    fill = msgspec.structs.replace(fill, high=min(sizes))
                return msgspec.structs.replace(argument, shape=new, strides=None, offset=0, fill=fill)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case schema.Scalar(value=int() as value) if value == parting.size and not isinstance(value, bool):
                numbers += 1
                return schema.Scalar(inside if Place(numbers, -1) in parting.places else outside)
            case _:
                return argument

    args = tuple(change(argument) for argument in case.args)
    kwargs = {key: change(argument) for key, argument in case.kwargs.items()}
    return with_modes_of(case, msgspec.structs.replace(case, args=args, kwargs=kwargs))


def _parting(size: int, places: list[Place], random_: random.Random) -> Parting:
    """A single place, all with the same dimension, or any; and any of the numbers."""
    dimensions = [place for place in places if place.dimension >= 0]
    one = random_.choice(dimensions)
    chosen = random_.choice(
        (
            {one},
            {place for place in dimensions if place.dimension == one.dimension},
            {place for place in dimensions if random_.random() < 0.5},
        )
    )
    numbers = {place for place in places if place.dimension < 0 and random_.random() < 0.5}
    return Parting(size, frozenset(chosen | numbers))


def _places(case: schema.Case) -> Mapping[int, list[Place]]:
    """Size -> where it stands. Numbers are counted among those that equal the same size."""
    found: dict[int, list[Place]] = {}
    for position, tensor in enumerate(schema.tensors_of(case)):
        for dimension, size in enumerate(tensor.shape):
            found.setdefault(size, []).append(Place(position, dimension))
    for number in _numbers((*case.args, *case.kwargs.values())):
        if number in found:
            count = sum(place.dimension < 0 for place in found[number])
            found[number].append(Place(count, -1))
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
