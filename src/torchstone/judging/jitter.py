"""Variants of a case: the stated one with other sizes and other memory, which no candidate is told beforehand.

A kernel may be exact on the shapes that a suite states and wrong one element further. Most variants change every
dimension of one size together (what was equal stays equal, but for :mod:`torchstone.judging.uneven`), and what else
goes with it: lists and numbers that equal the size, ranges of indices. Nothing here knows operators: a variant counts
only if torch's own operator takes it, tried on the CPU, where an index out of range is an error and not the end of the
device's context.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping

import msgspec
import torch

from torchstone import operators, schema
from torchstone.errors import UsageError
from torchstone.judging.evaluation import Evaluation, Evaluator, ReferenceFailure
from torchstone.judging.inputs import draw_call
from torchstone.judging.modes import with_modes_of
from torchstone.judging.uneven import uneven

HIDDEN = "hidden"
"""The tag of a variant."""
MOST_ELEMENTS = 1 << 16
"""Of a tensor. Variants are for correctness."""
_MOST_SIZE = 2048
_MOST_WORK = 1 << 22
"""The product of a variant's different sizes: what a contraction or a broadcast of all of them would cost."""
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 61, 67, 97, 127, 131, 257, 509, 521, 1021, 1031, 2039)
FILLS_PER_ELEMENT = (schema.Normal, schema.Uniform, schema.Integers, schema.Booleans)
"""Values of which some may be the same; of the others some would have to be different."""
_REAL_FILLS = (schema.Normal, schema.Uniform, schema.Booleans)
_CPU = torch.device("cpu")

Sizes = Mapping[int, int]
"""Old size -> new size."""
Kind = Callable[[Sizes, random.Random], Sizes]
"""Sizes that are small enough -> those of a variant."""


def variants(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """One variant of every kind, valid or not."""
    found = {identity(option): option for kind in KINDS for option in options(case, kind, random_)}
    return [option for key, option in found.items() if key != identity(case)]


def is_valid(case: schema.Case, seed: int) -> bool:
    """Whether torch takes the case, with values as they come, and with the largest indices and full masks."""
    return _tried(case, seed) is not None


def is_as_finite_as(case: schema.Case, other: schema.Case, seed: int) -> bool:
    """Whether both have results of the same shapes and dtypes, and the first no fewer that are finite."""
    one, two = _tried(case, seed), _tried(other, seed)
    if one is None or two is None or one.tensors.keys() != two.tensors.keys():
        return False
    return all(_is_as_finite(tensor, two.tensors[place]) for place, tensor in one.tensors.items())


def _tried(case: schema.Case, seed: int) -> Evaluation | None:
    """The results on the CPU, if torch takes it with the largest indices and full masks, too."""
    if _ends_the_process(case):
        return None
    found: Evaluation | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "degrees of freedom <= 0": the answer is NaN, and defined
        try:
            largest = _with_largest_values(case)
            for tried in (largest, case) if largest != case else (case,):
                found = Evaluator(tried, _CPU).native([draw_call(tried, seed, _CPU)])
        except (ReferenceFailure, UsageError):
            return None
    return found


def _ends_the_process(case: schema.Case) -> bool:
    """Whether it must not even be tried: torch's attention on the CPU divides by its sizes (SIGFPE)."""
    return "attention" in case.operator and any(0 in recipe.shape for recipe in schema.tensors_of(case))


def _is_as_finite(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and int(torch.isfinite(one).sum()) >= int(torch.isfinite(other).sum())


def is_hidden(case: schema.Case) -> bool:
    """Whether it is a variant."""
    return HIDDEN in case.tags


def identity(case: schema.Case) -> str:
    """The same for variants that are called alike."""
    return schema.content_key(case.args, case.kwargs)


# The kinds. Taken in turn, so that a few variants are of different kinds.


def options(case: schema.Case, kind: Kind, random_: random.Random) -> list[schema.Case]:
    """One variant, in the ways in which numbers among the arguments can be meant: as sizes, or not."""
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
        found = [_laid_out(option, random.Random(layout_seed)) for option in found]
    return [hidden(option) for option in found]


def large_options(case: schema.Case, random_: random.Random) -> list[list[schema.Case]]:
    """Two variants of the stated magnitude, likewise; none of a case that is small enough for the others.

    One more or less of everything: once on memory as it is stated, which is what a kernel's quickest way is made for,
    once on other memory. Whole numbers that are drawn may be indices, and without a trial nobody knows into what: where
    there are any, sizes only grow and their ranges stay, so that what they point at is still there, and on other memory
    nothing changes.
    """
    symbols = _symbols(case)
    if not symbols or not _too_large(case, {size: size for size in symbols}):
        return []
    draws_whole_numbers = any(not isinstance(t.fill, _REAL_FILLS) for t in schema.tensors_of(case))
    steps = (1, 0) if draws_whole_numbers else (random_.choice((-1, 1)), random_.choice((-1, 1)))
    plain, other = (_all_moved(case, symbols, step) for step in steps)
    layout_seed = random_.getrandbits(63)
    scattered = [_laid_out(option, random.Random(layout_seed), scattered=True) for option in other]
    return [[hidden(option) for option in options_] for options_ in (plain, scattered)]


def _all_moved(case: schema.Case, symbols: list[int], step: int) -> list[schema.Case]:
    sizes = {size: size + step for size in symbols}
    return [resized(case, sizes, numbers=numbers, ranges=False) for numbers in ((True, False) if step else (False,))]


def hidden(case: schema.Case) -> schema.Case:
    """Marked as a variant."""
    return msgspec.structs.replace(case, tags=(*case.tags, HIDDEN), timed=False, jitter=False)


def _kept(sizes: Sizes, random_: random.Random) -> Sizes:
    """The stated sizes, as far as they are not too large: only the memory is another."""
    return sizes


def _uneven(sizes: Sizes, random_: random.Random) -> Sizes:
    """What is equal does not stay so: the stated sizes, likewise, of which some places then get others."""
    return sizes


def rows_apart(sizes: Sizes, random_: random.Random) -> Sizes:
    """The stated sizes, likewise, on memory with gaps between its rows."""
    return sizes


def whole_blocks(sizes: Sizes, random_: random.Random) -> Sizes:
    """Powers of two, or multiples of one, on plain memory: who is careful about what is left over has nothing left."""

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
    """Anything that is no multiple of 16."""

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
    """Of one size as often as of several: where there is nothing to add up there may still be a result."""
    return _each(sizes, {random_.choice(sorted(sizes))} if random_.random() < 0.5 else _some(sizes, random_), 0)


KINDS: tuple[Kind, ...] = (_off_by_one, _kept, _ragged, _ones, _primes, _zeros)
ALWAYS: tuple[Kind, ...] = (_batch_of_one, _uneven, rows_apart, whole_blocks)
"""Kinds of which every job gets one, as far as torch takes it."""


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


def resized(case: schema.Case, sizes: Sizes, *, numbers: bool, ranges: bool = True) -> schema.Case:
    """With other sizes; ``numbers``: whole numbers among the arguments that equal a size change with it; ``ranges``:
    so do those of drawn indices.
    """
    followed = sizes if ranges else {}
    return with_modes_of(case, mapped(case, lambda argument: _resized_argument(argument, sizes, numbers, followed)))


def mapped(case: schema.Case, change: Callable[[schema.Argument], schema.Argument]) -> schema.Case:
    """With each argument changed."""
    args = tuple(change(argument) for argument in case.args)
    kwargs = {name: change(argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _resized_argument(argument: schema.Argument, sizes: Sizes, numbers: bool, ranges: Sizes) -> schema.Argument:
    match argument:
        case schema.Tensor(shape=shape, strides=strides, fill=fill):
            new = tuple(sizes.get(size, size) for size in shape)
            layout = None if strides is None else strides_like(strides, new)
            return msgspec.structs.replace(argument, shape=new, strides=layout, fill=_resized_fill(fill, ranges))
        case schema.Sequence(items=items):
            return schema.Sequence(tuple(_resized_argument(item, sizes, numbers, ranges) for item in items))
        case schema.Scalar(value=int() as value) if numbers and not isinstance(value, bool):
            return schema.Scalar(sizes.get(value, value))
        case _:
            return argument


def _resized_fill(fill: schema.Fill, sizes: Sizes) -> schema.Fill:
    """Indices into a dimension follow its size."""
    if isinstance(fill, schema.Integers | schema.SortedIntegers) and fill.low == 0 and fill.high in sizes:
        return msgspec.structs.replace(fill, high=sizes[fill.high])
    return fill


def strides_like(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same order of dimensions and the same innermost step for another shape; what was expanded stays so."""
    found = list(strides)
    step = min((stride for stride in strides if stride), default=1)
    for dimension in sorted(range(len(strides)), key=lambda d: strides[d]):
        if strides[dimension]:
            found[dimension] = step
            step *= max(1, shape[dimension])
    return tuple(found)


def _with_largest_values(case: schema.Case) -> schema.Case:
    """Every index as large as it may be, every mask full: ``masked_scatter`` needs as many values as that."""

    def largest(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(fill=schema.Integers(high=high, low=low)) if low < high:
                return msgspec.structs.replace(argument, fill=schema.Integers(high - 1, high))
            case schema.Tensor(fill=schema.Booleans()):
                return msgspec.structs.replace(argument, fill=schema.Booleans(1.0))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(largest(item) for item in items))
            case _:
                return argument

    return mapped(case, largest)


# Memory.


def on_plain_memory(case: schema.Case) -> schema.Case:
    """With every tensor contiguous."""

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(strides=tuple()):
                return msgspec.structs.replace(argument, strides=None, offset=0)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def relaid(case: schema.Case, random_: random.Random) -> schema.Case:
    """The stated sizes on other memory that torch's kernels read everywhere: the last dimension as it was.

    Others permuted, as those of attention heads are; of tensors that are only read, rows further apart as well, and of
    matrices always; and not at the beginning of the memory. Given values stay where they are.
    """
    written = operators.contract_of(case).mutated
    position = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal position
        match argument:
            case schema.Tensor(fill=fill):
                position += 1
                given = isinstance(fill, schema.Given)
                return argument if given else _relaid_tensor(argument, position in written, random_)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def _relaid_tensor(tensor: schema.Tensor, written: bool, random_: random.Random) -> schema.Tensor:
    strides, dimensions = tensor.strides, len(tensor.shape)
    rows_apart = dimensions > 1 and not written and (dimensions == 2 or random_.random() < 0.5)
    shape = (*tensor.shape[:-1], tensor.shape[-1] + random_.choice((1, 4))) if rows_apart else tensor.shape
    if dimensions > 2:
        before = list(range(dimensions, 1, -1))
        ranks = random_.sample(before, len(before))
        strides = strides_like((*(ranks if ranks != before else reversed(ranks)), 1), shape)
    elif dimensions == 2 and rows_apart:
        strides = operators.contiguous_strides(shape)
    return msgspec.structs.replace(tensor, strides=strides, offset=random_.choice((0, 1, 4, 7)))


def _laid_out(case: schema.Case, random_: random.Random, *, scattered: bool = False) -> schema.Case:
    """Every tensor on other memory; ``scattered``: none of them contiguous, as far as a tensor can be otherwise.

    Expanded only where nothing is written, and for pointwise operators; others are asked first
    (:mod:`torchstone.judging.expanded`).
    """
    written = operators.contract_of(case).mutated
    pointwise = operators.traits(case.operator).pointwise
    position = -1

    def change(argument: schema.Argument) -> schema.Argument:
        nonlocal position
        match argument:
            case schema.Tensor():
                position += 1
                expandable = pointwise and position not in written
                return on_other_memory(argument, random_, expandable=expandable, scattered=scattered)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def on_other_memory(
    tensor: schema.Tensor, random_: random.Random, *, expandable: bool = False, scattered: bool = False
) -> schema.Tensor:
    """Its rows, or what else its memory consists of, further apart; its dimensions in another order, perhaps further
    apart as well; with a step of two, shifted, or expanded along one dimension.
    """
    plain = operators.contiguous_strides(tensor.shape)
    layouts = [] if scattered and tensor.shape else ["shifted"]
    if tensor.shape:
        layouts.append("stepped")
    if len(tensor.shape) > 1:
        layouts += ["apart", "apart", "transposed", "transposed"]
    if expandable and tensor.shape and isinstance(tensor.fill, FILLS_PER_ELEMENT):
        layouts.append("expanded")
    layout = random_.choice(layouts)
    strides: tuple[int, ...] | None = None
    if layout == "stepped":
        strides = tuple(2 * stride for stride in plain)
    elif layout == "apart":
        strides = operators.contiguous_strides(_padded(tensor.shape, random_))
    elif layout == "transposed":
        descending = list(range(len(plain), 0, -1))
        ranks = random_.sample(descending, len(plain))
        shape = _padded(tensor.shape, random_) if random_.random() < 0.25 else tensor.shape
        strides = strides_like(tuple(ranks if ranks != descending else reversed(ranks)), shape)
    elif layout == "expanded":
        dimension = random_.randrange(len(plain))
        strides = strides_like(tuple(0 if d == dimension else s for d, s in enumerate(plain)), tensor.shape)
    return msgspec.structs.replace(tensor, strides=strides, offset=random_.choice((0, 1, 3, 7)))


def apart(case: schema.Case, random_: random.Random) -> schema.Case:
    """Every tensor as if cut out of a larger one: ``x[:, :n]``, a chunk, one of q, k and v; a column, ``x[:, 0]``."""

    def change(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(shape=(_,), fill=fill) if not isinstance(fill, schema.Given):
                return msgspec.structs.replace(argument, strides=(random_.choice((2, 3)),))
            case schema.Tensor(shape=shape, fill=fill) if len(shape) > 1 and not isinstance(fill, schema.Given):
                strides = operators.contiguous_strides(_padded(shape, random_))
                return msgspec.structs.replace(argument, strides=strides, offset=random_.choice((0, 1, 4, 8)))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(change(item) for item in items))
            case _:
                return argument

    return mapped(case, change)


def _padded(shape: tuple[int, ...], random_: random.Random) -> tuple[int, ...]:
    """The sizes of a tensor that this one may be cut out of, mostly with longer rows. The first adds nothing to it."""
    sizes = [max(1, size) for size in shape]
    inner = len(shape) - 1 if random_.random() < 0.75 else random_.randrange(1, len(shape))
    sizes[inner] += random_.choice((1, 3, 4, 8, sizes[inner]))
    return tuple(sizes)
