"""Draws shapes for the tensor arguments of one call, by families such as equal, broadcast, or a matrix product.

Operators are not known one by one. Each family makes shapes for any tensor arguments, or tells that it has none for
them. Which families an operator accepts is found out by calling torch (see `learned_call_forms`). A family also sets
numbers that follow from the shapes, by the names that ATen uses for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from torchstone.suites.random_choices import Choices
from torchstone.suites.recorded_call_text import Value

MOST_ELEMENTS = 400
"""Elements of the largest tensors, approximately. Shapes for learning (`OrdinaryChoices`) may have more."""
_MAX_LIST_TENSORS = 3
"""Most tensors in a list."""

Shape = tuple[int, ...]
Role = Literal["value", "index", "mask"]


class Slot(NamedTuple):
    """A tensor argument of an operator."""

    name: str
    listed: bool
    """Whether it is a list of tensors."""
    optional: bool
    written: bool
    role: Role


class Shapes(NamedTuple):
    """The shapes of one call."""

    of: Mapping[str, tuple[Shape, ...]]
    """By argument; one shape for each tensor."""
    main: Shape
    """The shape to which dimensions and sizes among the other arguments refer."""
    fixed: Mapping[str, Value] = {}
    """Values of other arguments that follow from the shapes."""
    whole: frozenset[str] = frozenset()
    """Tensor arguments that hold integers here, whatever the dtype of the others is."""


Family = Callable[[Choices, Sequence[Slot], int], "Shapes | None"]
"""(choices, tensor arguments, rank of the largest) -> shapes; None: the family does not fit such arguments."""


def draw_shape(choices: Choices, rank: int, most: int = MOST_ELEMENTS) -> Shape:
    """A random shape of the rank. Each dimension leaves elements for the dimensions after it.

    The shape has at most ``most`` elements, unless the choices ignore that: see `OrdinaryChoices`.
    """
    found: list[int] = []
    for left in range(rank, 0, -1):
        room = most // max(1, math.prod(found))
        found.append(choices.size(room if left == 1 else max(1, min(room, round(2 * room ** (1 / left))))))
    return tuple(found)


def _sizes(choices: Choices, count: int) -> Shape:
    """This many sizes for the dimensions of a product."""
    return tuple(choices.size(33 if count < 4 else 17) for _ in range(count))


# ---- alike


def same(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """All tensors have the same shape."""
    shape = draw_shape(choices, rank)
    return Shapes({slot.name: (shape,) * _tensor_count(choices, slot) for slot in slots}, shape)


def broadcast(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """Each tensor has the full shape, or ones in it, or lacks leading dimensions. Written tensors: the full shape."""
    whole = draw_shape(choices, rank)
    found = {
        slot.name: tuple(
            whole if slot.written else _broadcastable(choices, whole) for _ in range(_tensor_count(choices, slot))
        )
        for slot in slots
    }
    return Shapes(found, whole, {"size": whole}) if rank else None


def _broadcastable(choices: Choices, whole: Shape) -> Shape:
    ones = tuple(choices.one_of((size, size, 1)) for size in whole)
    return ones[choices.whole(0, len(whole)) :] if choices.one_of((False, False, True)) else ones


def _tensor_count(choices: Choices, slot: Slot) -> int:
    return choices.whole(1, _MAX_LIST_TENSORS) if slot.listed else 1


def joined(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """A list whose tensors differ along one dimension."""
    if rank == 0 or len(slots) != 1 or not slots[0].listed:
        return None
    shape = draw_shape(choices, rank)
    dim = choices.whole(0, rank - 1)
    parts = tuple(
        (*shape[:dim], choices.size(17), *shape[dim + 1 :]) for _ in range(choices.whole(1, _MAX_LIST_TENSORS))
    )
    return Shapes({slots[0].name: parts}, shape, {"dim": choices.one_of((dim, dim - rank))})


def square(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """Square matrices, or stacks of them."""
    if rank < 2:
        return None
    side = choices.size(19)
    shape = (*draw_shape(choices, rank - 2, 4), side, side)
    return Shapes({slot.name: (shape,) * _tensor_count(choices, slot) for slot in slots}, shape)


# ---- products


def _product(name: str, axes: Sequence[str], rank: int) -> Family:
    """Shapes written as subscripts: ``ik kj`` is a matrix product, ``ij? ik kj`` one with a bias that may broadcast."""

    def family(choices: Choices, slots: Sequence[Slot], wanted: int) -> Shapes | None:
        if wanted != rank or len(slots) != len(axes) or any(slot.listed or slot.role == "index" for slot in slots):
            return None
        letters = sorted({letter for word in axes for letter in word if letter.isalpha()})
        size = dict(zip(letters, _sizes(choices, len(letters)), strict=True))
        found: dict[str, tuple[Shape, ...]] = {}
        for slot, word in zip(slots, axes, strict=True):
            shape = tuple(size[letter] for letter in word if letter.isalpha())
            broadcasts = word.endswith("?") and not slot.written
            found[slot.name] = (_broadcastable(choices, shape) if broadcasts else shape,)
        return Shapes(found, max((shapes[0] for shapes in found.values()), key=len))

    family.__name__ = name
    return family


# ---- a tensor, and others with some of its dimensions


def rows(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """The first tensor is the input. The others have its last dimensions, as weights of layer norm do."""
    if rank == 0:
        return None
    shape = draw_shape(choices, rank)
    tail = shape[-choices.whole(1, rank) :]
    found = {slot.name: (shape if slot is slots[0] else tail,) for slot in slots}
    return Shapes(found, shape, {"normalized_shape": tail})


def channels(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """The first tensor has channels as its second dimension. The others have one element per channel."""
    if rank < 2 or _has_index(slots):
        return None
    groups = choices.whole(1, 3)
    batch, each, *rest = draw_shape(choices, rank)
    shape = (batch, each * groups, *rest)
    found = {slot.name: (shape if slot is slots[0] else shape[1:2],) for slot in slots}
    fixed: dict[str, Value] = {"N": batch, "C": shape[1], "HxW": math.prod(rest), "group": groups, "num_groups": groups}
    return Shapes(found, shape, fixed)


def convolution(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """Input, weight and bias of a convolution."""
    if rank < 3 or len(slots) < 2 or _has_index(slots):
        return None
    spatial = rank - 2
    batch, groups = choices.size(3), choices.whole(1, 2)
    taken, given = groups * choices.whole(1, 3), groups * choices.whole(1, 4)
    kernel = tuple(choices.whole(1, 3) for _ in range(spatial))
    extent = tuple(window + choices.whole(0, 9 // spatial) for window in kernel)
    shapes = ((batch, taken, *extent), (given, taken // groups, *kernel), (given,))
    fixed: dict[str, Value] = {
        "stride": tuple(choices.whole(1, 2) for _ in kernel),
        "padding": tuple(choices.whole(0, window // 2) for window in kernel),
        "dilation": (1,) * spatial,
        "output_padding": (0,) * spatial,
        "transposed": False,
        "groups": groups,
    }
    found = {slot.name: (shape,) for slot, shape in zip(slots, (*shapes, *shapes[2:] * len(slots)), strict=False)}
    return Shapes(found, shapes[0], fixed)


# ---- indices


def picked(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """A vector of indices into one dimension, as in index_select; a source has the vector's length there."""
    if rank == 0 or not _has_index(slots):
        return None
    shape = draw_shape(choices, rank)
    dim, length = choices.whole(0, rank - 1), choices.size(9)
    beside = (*shape[:dim], length, *shape[dim + 1 :])
    found = {slot.name: (_shape_for(slot, slots, shape, (length,), beside),) for slot in slots}
    return Shapes(found, shape, {"dim": choices.one_of((dim, dim - rank))})


def gathered(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """An index for every element of the result, as in gather. No dimension is longer than the indexed tensor's."""
    if rank == 0 or not _has_index(slots):
        return None
    shape = draw_shape(choices, rank)
    index = tuple(min(size, choices.size(9)) for size in shape)
    dim = choices.whole(0, rank - 1)
    found = {slot.name: (_shape_for(slot, slots, shape, index, index),) for slot in slots}
    return Shapes(found, shape, {"dim": choices.one_of((dim, dim - rank))})


def looked_up(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """Indices of any shape into the rows of a table, as in embedding."""
    if not _has_index(slots):
        return None
    table, index = draw_shape(choices, 2, 200), draw_shape(choices, rank, 60)
    return Shapes({slot.name: (_shape_for(slot, slots, table, index, index),) for slot in slots}, table)


def indexed(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """A list of index vectors, one for each of the first dimensions, as in index_put."""
    lists = [slot for slot in slots if slot.role == "index" and slot.listed]
    if rank == 0 or len(lists) != 1:
        return None
    shape = draw_shape(choices, rank)
    count, length = choices.whole(1, rank), choices.size(9)
    found = {slot.name: (_shape_for(slot, slots, shape, (), (length, *shape[count:])),) for slot in slots}
    return Shapes(found | {lists[0].name: ((length,),) * count}, shape)


def classes(choices: Choices, slots: Sequence[Slot], rank: int) -> Shapes | None:
    """Scores of classes, the class of each sample, and perhaps a weight for each class, as in losses."""
    if rank != 2 or len(slots) < 2 or _has_index(slots):
        return None
    samples, count = choices.size(19), choices.size(17)
    shapes = ((samples, count), (samples,), *((count,),) * (len(slots) - 2))
    found = {slot.name: (shape,) for slot, shape in zip(slots, shapes, strict=True)}
    return Shapes(found, shapes[0], whole=frozenset({slots[1].name}))


def _has_index(slots: Sequence[Slot]) -> bool:
    return any(slot.role == "index" and not slot.listed for slot in slots)


def _shape_for(slot: Slot, slots: Sequence[Slot], main: Shape, index: Shape, beside: Shape) -> Shape:
    if slot.role == "index":
        return index
    return main if slot is next(other for other in slots if other.role != "index") else beside


FAMILIES: tuple[Family, ...] = (
    same,
    broadcast,
    joined,
    _product("product", ("ik", "kj"), 2),
    _product("product_with_bias", ("ij?", "ik", "kj"), 2),
    _product("matrix_and_vector", ("ik", "k"), 2),
    _product("matrix_and_vector_with_bias", ("i?", "ik", "k"), 2),
    _product("outer", ("i", "j"), 1),
    _product("outer_with_bias", ("ij?", "i", "j"), 2),
    _product("linear", ("ik", "jk", "j"), 2),
    _product("linear_of_batches", ("bik", "jk", "j"), 3),
    _product("batches", ("bik", "bkj"), 3),
    _product("batches_with_bias", ("bij?", "bik", "bkj"), 3),
    rows,
    channels,
    convolution,
    picked,
    gathered,
    looked_up,
    indexed,
    classes,
    square,
)
RANKS = (1, 2, 0, 3, 4)
"""The simplest first."""
