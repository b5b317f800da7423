"""Makes hidden variants of a case: the same operator on other sizes and memory layouts, unknown to the candidate.

A kernel may be exact on the shapes that a suite states and wrong one element further. Most variants change all
dimensions of one size together, and also the lists, numbers and index ranges that equal it. Equal sizes stay equal,
except in :mod:`torchstone.judging.variants.unequal_sizes`. No table of operators is needed: a variant is used only if
torch's own operator accepts it. That is tried on the CPU, where an index out of range raises an error. On a GPU it
would destroy the CUDA context.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from torchstone import schema
from torchstone.calls.resizing import Sizes, resized
from torchstone.judging.variant_tag import hidden
from torchstone.judging.variants.memory import as_slices_of_larger, laid_out, on_plain_memory
from torchstone.judging.variants.unequal_sizes import with_unequal_sizes

MOST_ELEMENTS = 1 << 16
"""Most elements of a tensor of a variant. Variants are for correctness, not for timing."""
_MOST_SIZE = 2048
"""Largest size of a dimension that changes."""
_MOST_SIZE_PRODUCT = 1 << 22
"""Largest product of a variant's different sizes: the cost of a contraction or a broadcast over all of them."""
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 61, 67, 97, 127, 131, 257, 509, 521, 1021, 1031, 2039)
_NON_INDEX_FILLS = (schema.Normal, schema.Uniform, schema.Booleans)
"""Fills whose values cannot be indices."""

Kind = Callable[[Sizes, random.Random], Sizes]
"""Maps the sizes of a case, which is small enough or was shrunk, to those of a variant."""


def variants(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """One variant of every kind, valid or not."""
    found = {identity(option): option for kind in KINDS for option in options(case, kind, random_)}
    return [option for key, option in found.items() if key != identity(case)]


def identity(case: schema.Case) -> str:
    """A key that is equal for variants with equal arguments."""
    return schema.content_key(case.args, case.kwargs)


# The kinds of variants. They are used in turn, so that even a few variants are of different kinds.


def options(case: schema.Case, kind: Kind, random_: random.Random) -> list[schema.Case]:
    """One variant in two forms: integer arguments that equal a size change with it, or they stay."""
    distinct = _distinct_sizes(case)
    sizes = kind(_shrunk(case, distinct), random_) if distinct else {}
    found = [resized(case, sizes, numbers=numbers) for numbers in (True, False)]
    if kind is _uneven:
        found = [
            option
            for base in {identity(each): each for each in found}.values()
            for option in with_unequal_sizes(base, random_)
        ]
    if kind is rows_apart:
        return [hidden(as_slices_of_larger(option, random_)) for option in found]
    if kind is whole_blocks:
        return [hidden(on_plain_memory(option)) for option in found]
    if kind is _kept or random_.random() < 0.5:
        layout_seed = random_.getrandbits(63)
        found = [laid_out(option, random.Random(layout_seed)) for option in found]
    return [hidden(option) for option in found]


def large_options(case: schema.Case, random_: random.Random) -> list[list[schema.Case]]:
    """Two variants of about the stated size; none for a case that is small enough for the other kinds.

    All sizes grow or shrink by one. The first variant has memory as stated, for which a kernel's fastest path is made;
    the second has other memory. Drawn integers may be indices, and without a trial their target is unknown. So with
    drawn integers, sizes only grow and index ranges stay, which keeps every index valid; in other memory sizes stay.
    """
    distinct = _distinct_sizes(case)
    if not distinct or not _too_large(case, {size: size for size in distinct}):
        return []
    may_draw_indices = any(not isinstance(t.fill, _NON_INDEX_FILLS) for t in schema.tensors_of(case))
    steps = (1, 0) if may_draw_indices else (random_.choice((-1, 1)), random_.choice((-1, 1)))
    plain, other = (_all_changed_by(case, distinct, step) for step in steps)
    layout_seed = random_.getrandbits(63)
    scattered = [laid_out(option, random.Random(layout_seed), scattered=True) for option in other]
    return [[hidden(option) for option in options_] for options_ in (plain, scattered)]


def _all_changed_by(case: schema.Case, distinct: list[int], step: int) -> list[schema.Case]:
    sizes = {size: size + step for size in distinct}
    return [resized(case, sizes, numbers=numbers, ranges=False) for numbers in ((True, False) if step else (False,))]


def _kept(sizes: Sizes, random_: random.Random) -> Sizes:
    """Keep the stated sizes, in another memory layout."""
    return sizes


def _uneven(sizes: Sizes, random_: random.Random) -> Sizes:
    """Keep the stated sizes, but make some equal dimensions differ."""
    return sizes


def rows_apart(sizes: Sizes, random_: random.Random) -> Sizes:
    """Keep the stated sizes, on memory with gaps between rows."""
    return sizes


def whole_blocks(sizes: Sizes, random_: random.Random) -> Sizes:
    """Powers of two, or multiples of one, in contiguous memory: catches code that mishandles a remainder of 0."""

    def draw(new: int) -> int:
        power = 1 << (max(2, new).bit_length() - 1)
        block = random_.choice((power, power, 16, 32))
        return max(block, new // block * block) if block <= new else power

    return _drawn_in_order(sizes, draw)


def _off_by_one(sizes: Sizes, random_: random.Random) -> Sizes:
    """All sizes plus one, or all minus one."""
    step = random_.choice((-1, 1))
    return {old: max(1, new + step) for old, new in sizes.items()}


def _primes(sizes: Sizes, random_: random.Random) -> Sizes:
    return _drawn_in_order(sizes, lambda new: random_.choice([p for p in _PRIMES if p <= max(3, new)][-6:]))


def _ragged(sizes: Sizes, random_: random.Random) -> Sizes:
    """Random sizes that are not multiples of 16."""

    def draw(new: int) -> int:
        drawn = random_.randint(max(1, new // 2), max(3, new))
        return drawn - 1 if drawn % 16 == 0 else drawn

    return _drawn_in_order(sizes, draw)


def _batch_of_one(sizes: Sizes, random_: random.Random) -> Sizes:
    """The leading size and a random subset of the others become 1."""
    leading = next(iter(sizes))
    return _replaced(sizes, {leading, *_random_subset(sizes, random_)}, 1)


def _ones(sizes: Sizes, random_: random.Random) -> Sizes:
    return _replaced(sizes, _random_subset(sizes, random_), 1)


def _zeros(sizes: Sizes, random_: random.Random) -> Sizes:
    """One size or several become 0: a sum over no elements still has a result."""
    return _replaced(
        sizes, {random_.choice(sorted(sizes))} if random_.random() < 0.5 else _random_subset(sizes, random_), 0
    )


KINDS: tuple[Kind, ...] = (_off_by_one, _kept, _ragged, _ones, _primes, _zeros)
ALWAYS: tuple[Kind, ...] = (_batch_of_one, _uneven, rows_apart, whole_blocks)
"""Kinds of which every job gets one each, as far as torch accepts it, if the job gets more variants than these."""
GROUPS: tuple[tuple[Kind, ...], ...] = (
    (_uneven, _off_by_one, _ragged, _primes),
    (_batch_of_one, whole_blocks, _ones, _zeros),
    (rows_apart, _kept),
)
"""Other sizes; sizes of 1, 0 or whole blocks; other memory. A job with few variants gets one kind of each group."""


def _random_subset(sizes: Sizes, random_: random.Random) -> set[int]:
    """A random subset with at least one size; each size has probability 1/2."""
    return {old for old in sorted(sizes) if random_.random() < 0.5} or {random_.choice(sorted(sizes))}


def _replaced(sizes: Sizes, chosen: set[int], size: int) -> Sizes:
    return {old: size if old in chosen else new for old, new in sizes.items()}


def _drawn_in_order(sizes: Sizes, draw: Callable[[int], int]) -> Sizes:
    """New sizes, drawn for each old one and sorted like them: the index of a gather stays in range."""
    return dict(zip(sorted(sizes), sorted(draw(new) for new in sizes.values()), strict=True))


# Sizes.


def _distinct_sizes(case: schema.Case) -> list[int]:
    """The different sizes above 1, in order of occurrence. If there are none, 0 and 1."""
    sizes = dict.fromkeys(size for tensor in schema.tensors_of(case) for size in tensor.shape)
    return [size for size in sizes if size > 1] or list(sizes)


def _shrunk(case: schema.Case, distinct: list[int]) -> dict[int, int]:
    """New size for each size: the largest one is halved until the case is small."""
    sizes = {size: size for size in distinct}
    while _too_large(case, sizes):
        largest = max(sizes, key=lambda old: sizes[old])
        sizes[largest] = max(1, sizes[largest] // 2)
    return sizes


def _too_large(case: schema.Case, sizes: Sizes) -> bool:
    work = 1
    for new in sizes.values():
        work *= max(1, new)
    return (
        max(sizes.values()) > _MOST_SIZE
        or work > _MOST_SIZE_PRODUCT
        or any(_elements(tensor, sizes) > MOST_ELEMENTS for tensor in schema.tensors_of(case))
    )


def _elements(tensor: schema.Tensor, sizes: Sizes) -> int:
    """Elements of a tensor with every size one larger, as a variant may have them."""
    product = 1
    for size in tensor.shape:
        product *= sizes.get(size, size) + 1
    return product
