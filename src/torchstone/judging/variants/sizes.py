"""Makes hidden variants of a case: the same operator on other sizes and memory layouts, unknown to the candidate.

A kernel may be exact on the shapes that a suite states and wrong one element further. Most variants change every
dimension of one size together, with the lists, numbers and index ranges that equal it. What was equal stays equal,
except in :mod:`torchstone.judging.variants.unequal_sizes`. No table of operators is needed: a variant is used only if
torch's own operator accepts it. That is tried on the CPU, where an index out of range is an error and does not end the
device's context.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from torchstone import schema
from torchstone.calls.resizing import Sizes, resized
from torchstone.judging.variant_tag import hidden
from torchstone.judging.variants.memory import apart, laid_out, on_plain_memory
from torchstone.judging.variants.unequal_sizes import uneven

MOST_ELEMENTS = 1 << 16
"""Most elements of a tensor of a variant. Variants are for correctness, not for timing."""
_MOST_SIZE = 2048
_MOST_WORK = 1 << 22
"""The product of a variant's different sizes: what a contraction or a broadcast of all of them would cost."""
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 61, 67, 97, 127, 131, 257, 509, 521, 1021, 1031, 2039)
_REAL_FILLS = (schema.Normal, schema.Uniform, schema.Booleans)
_CPU = torch.device("cpu")

Kind = Callable[[Sizes, random.Random], Sizes]
"""Maps the sizes of a case, which is small enough or was shrunk, to those of a variant."""


def variants(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """One variant of every kind, valid or not."""
    found = {identity(option): option for kind in KINDS for option in options(case, kind, random_)}
    return [option for key, option in found.items() if key != identity(case)]


def identity(case: schema.Case) -> str:
    """A key that is equal for variants with equal arguments."""
    return schema.content_key(case.args, case.kwargs)


# The kinds. Taken in turn, so that a few variants are of different kinds.


def options(case: schema.Case, kind: Kind, random_: random.Random) -> list[schema.Case]:
    """One variant in two forms: with numbers among the arguments that equal a size changed like it, or not."""
    symbols = _symbols(case)
    sizes = kind(_shrunk(case, symbols), random_) if symbols else {}
    found = [resized(case, sizes, numbers=numbers) for numbers in (True, False)]
    if kind is _uneven:
        found = [
            option for base in {identity(each): each for each in found}.values() for option in uneven(base, random_)
        ]
    if kind is rows_apart:
        return [hidden(apart(option, random_)) for option in found]
    if kind is whole_blocks:
        return [hidden(on_plain_memory(option)) for option in found]
    if kind is _kept or random_.random() < 0.5:
        layout_seed = random_.getrandbits(63)
        found = [laid_out(option, random.Random(layout_seed)) for option in found]
    return [hidden(option) for option in found]


def large_options(case: schema.Case, random_: random.Random) -> list[list[schema.Case]]:
    """Two variants of the stated magnitude; none of a case that is small enough for the others.

    All sizes grow or shrink by one: once on memory as stated, for which a kernel's fastest path is made, once on
    other memory. Drawn integers may be indices, and without a trial their target is unknown. So with drawn integers,
    sizes only grow and index ranges stay, which keeps every index valid; on other memory nothing changes.
    """
    symbols = _symbols(case)
    if not symbols or not _too_large(case, {size: size for size in symbols}):
        return []
    draws_whole_numbers = any(not isinstance(t.fill, _REAL_FILLS) for t in schema.tensors_of(case))
    steps = (1, 0) if draws_whole_numbers else (random_.choice((-1, 1)), random_.choice((-1, 1)))
    plain, other = (_all_moved(case, symbols, step) for step in steps)
    layout_seed = random_.getrandbits(63)
    scattered = [laid_out(option, random.Random(layout_seed), scattered=True) for option in other]
    return [[hidden(option) for option in options_] for options_ in (plain, scattered)]


def _all_moved(case: schema.Case, symbols: list[int], step: int) -> list[schema.Case]:
    sizes = {size: size + step for size in symbols}
    return [resized(case, sizes, numbers=numbers, ranges=False) for numbers in ((True, False) if step else (False,))]


def _kept(sizes: Sizes, random_: random.Random) -> Sizes:
    """The stated sizes, as far as they are not too large: only the memory is another."""
    return sizes


def _uneven(sizes: Sizes, random_: random.Random) -> Sizes:
    """Keep the stated sizes, but make some equal dimensions differ."""
    return sizes


def rows_apart(sizes: Sizes, random_: random.Random) -> Sizes:
    """Keep the stated sizes, on memory with gaps between rows."""
    return sizes


def whole_blocks(sizes: Sizes, random_: random.Random) -> Sizes:
    """Powers of two, or multiples of one, on plain memory: catches tail code that mishandles a remainder of 0."""

    def draw(new: int) -> int:
        power = 1 << (max(2, new).bit_length() - 1)
        block = random_.choice((power, power, 16, 32))
        return max(block, new // block * block) if block <= new else power

    return _in_order(sizes, draw)


def _off_by_one(sizes: Sizes, random_: random.Random) -> Sizes:
    """One more or one less of everything."""
    step = random_.choice((-1, 1))
    return {old: max(1, new + step) for old, new in sizes.items()}


def _primes(sizes: Sizes, random_: random.Random) -> Sizes:
    return _in_order(sizes, lambda new: random_.choice([p for p in _PRIMES if p <= max(3, new)][-6:]))


def _ragged(sizes: Sizes, random_: random.Random) -> Sizes:
    """Random sizes that are no multiples of 16."""

    def draw(new: int) -> int:
        drawn = random_.randint(max(1, new // 2), max(3, new))
        return drawn - 1 if drawn % 16 == 0 else drawn

    return _in_order(sizes, draw)


def _batch_of_one(sizes: Sizes, random_: random.Random) -> Sizes:
    """The leading size, and with it others: rows or columns of one come with a batch of one."""
    leading = next(iter(sizes))
    return _each(sizes, {leading, *_some(sizes, random_)}, 1)


def _ones(sizes: Sizes, random_: random.Random) -> Sizes:
    return _each(sizes, _some(sizes, random_), 1)


def _zeros(sizes: Sizes, random_: random.Random) -> Sizes:
    """One size or several become 0: a sum of nothing still has a result."""
    return _each(sizes, {random_.choice(sorted(sizes))} if random_.random() < 0.5 else _some(sizes, random_), 0)


KINDS: tuple[Kind, ...] = (_off_by_one, _kept, _ragged, _ones, _primes, _zeros)
ALWAYS: tuple[Kind, ...] = (_batch_of_one, _uneven, rows_apart, whole_blocks)
"""Kinds of which every job gets one, as far as torch takes it, if it gets more than these."""
GROUPS: tuple[tuple[Kind, ...], ...] = (
    (_uneven, _off_by_one, _ragged, _primes),
    (_batch_of_one, whole_blocks, _ones, _zeros),
    (rows_apart, _kept),
)
"""Odd sizes; sizes of one, none or whole blocks; other memory. A job with few variants gets one of each group."""


def _some(sizes: Sizes, random_: random.Random) -> set[int]:
    """At least one of them, each as likely as not."""
    return {old for old in sorted(sizes) if random_.random() < 0.5} or {random_.choice(sorted(sizes))}


def _each(sizes: Sizes, chosen: set[int], size: int) -> Sizes:
    return {old: size if old in chosen else new for old, new in sizes.items()}


def _in_order(sizes: Sizes, draw: Callable[[int], int]) -> Sizes:
    """New sizes in the order of the old ones: a gather's index stays within what it indexes."""
    return dict(zip(sorted(sizes), sorted(draw(new) for new in sizes.values()), strict=True))


# Sizes.


def _symbols(case: schema.Case) -> list[int]:
    """The different sizes as they come; 0 and 1 have a meaning of their own, unless there are no others."""
    sizes = dict.fromkeys(size for tensor in schema.tensors_of(case) for size in tensor.shape)
    return [size for size in sizes if size > 1] or list(sizes)


def _shrunk(case: schema.Case, symbols: list[int]) -> dict[int, int]:
    """The largest size halved until the case is small."""
    sizes = {size: size for size in symbols}
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
        or work > _MOST_WORK
        or any(_elements(tensor, sizes) > MOST_ELEMENTS for tensor in schema.tensors_of(case))
    )


def _elements(tensor: schema.Tensor, sizes: Sizes) -> int:
    """With every size one larger, as a variant may be."""
    product = 1
    for size in tensor.shape:
        product *= sizes.get(size, size) + 1
    return product


# Memory.
