"""Chooses the hidden variants of a job: some newly made, most remembered from earlier jobs of the same case.

A hidden variant is the same operator with other sizes, memory or scalars; a job is one kernel on one case. The module
:mod:`torchstone.judging.variants.sizes` makes variants. A new one must be tried in torch, which costs as much as
judging it. In a run of many kernels, or of many attempts at one, a case comes again and again. So valid variants are
kept and used again. No job gets all of them, and new ones come in all the time: no job can know
from earlier ones what it will meet. Values are no part of a variant: each call draws its own.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from torchstone import schema
from torchstone.judging.variant_tag import hidden
from torchstone.judging.variants.expanded_memory import expanded, is_read_by_its_strides
from torchstone.judging.variants.gradient_variants import (
    asked_by_some,
    has_digits,
    otherwise_differentiated,
    with_expanded_cotangents,
)
from torchstone.judging.variants.memory import relaid
from torchstone.judging.variants.scalars import rescalings
from torchstone.judging.variants.sizes import (
    ALWAYS,
    GROUPS,
    KINDS,
    MOST_ELEMENTS,
    Kind,
    identity,
    large_options,
    options,
    rows_apart,
    whole_blocks,
)
from torchstone.judging.variants.unequal_sizes import more_and_fewer_keys, with_another_scale
from torchstone.judging.variants.validity import is_as_finite_as, is_valid

_TRIES = 3
"""How often a variant is tried to be made, for each one that is wanted."""
_OF_MANY = 0.25
"""Share of the cases that only get another layout and still get it when a job has but one variant."""
_FRESH_SHARE = 0.25
"""Share of new variants where a remembered one would do."""
_KEPT_PER_KIND = 3
"""Variants that are remembered for each kind and each treatment of scalars; the oldest make room."""
_CASES = 256
"""Cases that are remembered."""
Numbers = Literal["stated", "others", "others, zeros and defaults too"]
"""What a variant does with floating-point scalars."""
_MOST_UNTIMED = 1 << 23
"""Elements of a case that is not timed and yet gets variants of its own magnitude: of larger ones these take long."""
_TELLING_ELEMENTS = 32
_OWN_MEMORY = (rows_apart, whole_blocks)
"""Kinds that exist for their memory layout, which is not changed again."""
_OTHERS: tuple[Numbers, Numbers] = ("others", "others, zeros and defaults too")


def hidden_cases(case: schema.Case, count: int, random_: random.Random) -> list[schema.Case]:
    """Up to ``count`` variants that torch accepts on the CPU; fewer, perhaps none, if it accepts few.

    Causal attention gets more and fewer keys besides, if ``count`` is above 1.
    """
    if case.jitter:
        found = _pool_of(schema.content_key(case)).draw(case, count, random_)
        return found if count == 1 else [*found, *_causal(case, random_)]
    return _on_other_memory(case, random_) if case.layouts and (count > 1 or random_.random() < _OF_MANY) else []


def _causal(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """Causal attention with more keys than queries and with fewer: kernels differ in where its diagonal begins."""
    seed = random_.getrandbits(63)
    return [hidden(each) for each in more_and_fewer_keys(case, random_) if is_valid(each, seed)]


def _on_other_memory(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """The same sizes on other memory, for a case without variants of other sizes that is not too large.

    Where scales are stated, one size of the result changes with its scale.
    """
    if sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case)) > MOST_ELEMENTS:
        return []
    tries = [hidden(relaid(with_another_scale(case, random_), random_)) for _ in range(_TRIES)]
    seed = random_.getrandbits(63)
    others = (each for each in tries if identity(each) != identity(case) and is_valid(each, seed))
    return list(itertools.islice(others, 1))


def with_other_numbers(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """The stated case with other floating-point scalars and nothing else, if it has any and is small.

    Other variants with new scalars differ in size or memory as well. A kernel that stores compiled code with its
    scalars, by sizes, strides and dtypes, is right on all of those.
    """
    if not (case.jitter or case.layouts):
        return []
    if sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case)) > MOST_ELEMENTS:
        return []
    found = _rescaled(case, True, random_.getrandbits(63), random_)
    return [] if found is None or identity(found) == identity(case) else [hidden(found)]


def stated_size_cases(case: schema.Case, random_: random.Random) -> list[list[schema.Case]]:
    """For a case that is larger than any variant: some as large as it is, each in several possible forms.

    A kernel may treat large work separately, and smaller variants never meet that. They are not tried beforehand,
    which would take long: the caller uses the first form that torch takes.
    """
    elements = sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case))
    if not case.jitter or (elements > _MOST_UNTIMED and not case.timed):
        return []
    return [
        _with_numbers_first(ways, random_) if place else ways for place, ways in enumerate(large_options(case, random_))
    ]


def _with_numbers_first(ways: list[schema.Case], random_: random.Random) -> list[schema.Case]:
    """Each with other floating-point scalars first, then as it is: a path for large work may have scalars compiled
    in.
    """
    rescaled = [hidden(each) for way in ways for each in rescalings(way, random_, boldly=False)[:1]]
    return [*rescaled, *ways]


@lru_cache(maxsize=_CASES)
def _pool_of(key: str) -> VariantPool:
    return VariantPool()


class VariantPool:
    """Valid variants of one case, by kind."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Kind, Numbers], deque[tuple[str, schema.Case]]] = {
            (kind, numbers): deque(maxlen=_KEPT_PER_KIND)
            for kind in (*ALWAYS, *KINDS)
            for numbers in (*_OTHERS, "stated")
        }

    def draw(self, case: schema.Case, count: int, random_: random.Random) -> list[schema.Case]:
        """Variants of different kinds, as far as there are, in an order that nobody foresees.

        - Every kind of ``ALWAYS``, if more variants than these are wanted.
        - Else one of each group of ``GROUPS``, if at least that many are wanted.
        - Then any other kind.

        Every second variant has other floating-point scalars, and every second of those also for zeros and defaults.
        The others have expanded arguments, if there are any and torch takes them.
        """
        found: list[tuple[Kind, schema.Case]] = []
        seen = {identity(case)}
        turns = _turns(random_)
        wanted = _wanted(count, random_)
        for kinds in wanted:
            tries = ((kind, self._one(case, kind, turns[0], seen, random_)) for kind in kinds)
            for kind, taken in itertools.islice(((kind, taken) for kind, taken in tries if taken is not None), 1):
                found.append((kind, taken))
                turns.rotate(-_tells(taken, case))
        always = ALWAYS if count > len(ALWAYS) else ()
        others = [kind for kind in (*ALWAYS, *KINDS) if kind not in always]
        kinds = random_.sample(others, len(others))
        for kind in itertools.islice(itertools.cycle(kinds), _TRIES * count):
            if len(found) >= count:
                break
            variant = self._one(case, kind, turns[0], seen, random_)
            if variant is not None:
                found.append((kind, variant))
                turns.rotate(-_tells(variant, case))
        random_.shuffle(found)
        return _with_one_expanded(found, random_) if wanted else [variant for _, variant in found]

    def _one(
        self, case: schema.Case, kind: Kind, numbers: Numbers, seen: set[str], random_: random.Random
    ) -> schema.Case | None:
        kept = self._kept[kind, numbers]
        variant = _remembered(kept, seen, random_)
        if variant is not None:
            return variant
        variant = _fresh(case, kind, numbers, seen, random_)
        if variant is not None:
            kept.append((identity(variant), variant))
            seen.add(identity(variant))
        return variant


def _wanted(count: int, random_: random.Random) -> list[list[Kind]]:
    """For each variant that must be among so many, the kinds to try for it, one after the other."""
    if count > len(ALWAYS):
        return [[kind] * _TRIES for kind in ALWAYS]
    return [random_.sample(group, len(group)) for group in GROUPS] if count >= len(GROUPS) else []


def _with_one_expanded(found: Sequence[tuple[Kind, schema.Case]], random_: random.Random) -> list[schema.Case]:
    """The variants, one of which is changed to have an expanded argument if none has by chance and one can."""
    variants = [variant for _, variant in found]
    if any(has_expanded(variant) and not _has_nothing(variant) for variant in variants):
        return variants
    for place, (kind, variant) in enumerate(found):
        seed = random_.getrandbits(63)
        keeps = kind in _OWN_MEMORY or _has_nothing(variant)
        changed = None if keeps else _surely_expanded(variant, seed, random_)
        if changed is not None:
            return [*variants[:place], changed, *variants[place + 1 :]]
    return variants


def _has_nothing(variant: schema.Case) -> bool:
    """Whether a tensor has no elements: then the layout of others hardly shows."""
    return any(0 in recipe.shape for recipe in schema.tensors_of(variant))


def _surely_expanded(variant: schema.Case, seed: int, random_: random.Random) -> schema.Case | None:
    if not schema.is_gradient(variant.operator):
        return _expanded(variant, seed, random_)
    tries = (with_expanded_cotangents(variant, random_) for _ in range(_TRIES))
    return next((each for each in tries if has_expanded(each) and has_digits(each, seed)), None)


def has_expanded(case: schema.Case) -> bool:
    """Whether an argument is expanded; of a gradient, whether a cotangent is."""
    counted = schema.is_gradient(case.operator)
    looked_at = msgspec.structs.replace(case, args=case.args[:1], kwargs={}) if counted else case
    return any(
        step == 0 and size > 1
        for recipe in schema.tensors_of(looked_at)
        if 0 not in recipe.shape
        for step, size in zip(recipe.strides or (), recipe.shape, strict=False)
    )


def _turns(random_: random.Random) -> deque[Numbers]:
    """How variants treat scalars, in rotation. Every job begins with the most thorough treatment, or has it second."""
    turns: deque[Numbers] = deque([_OTHERS[1], "stated", _OTHERS[0], "stated"])
    turns.rotate(random_.getrandbits(1))
    return turns


def _tells(variant: schema.Case, case: schema.Case) -> bool:
    """Whether a variant has enough elements to show the effect of scalars."""
    own, stated = (max((math.prod(t.shape) for t in schema.tensors_of(each)), default=0) for each in (variant, case))
    return own >= min(stated, _TELLING_ELEMENTS)


def _remembered(kept: Iterable[tuple[str, schema.Case]], seen: set[str], random_: random.Random) -> schema.Case | None:
    unseen = [(key, variant) for key, variant in kept if key not in seen]
    if not unseen or random_.random() < _FRESH_SHARE:
        return None
    key, variant = random_.choice(unseen)
    seen.add(key)
    return variant


def _fresh(
    case: schema.Case, kind: Kind, numbers: Numbers, seen: set[str], random_: random.Random
) -> schema.Case | None:
    drawn = {identity(option): option for option in options(case, kind, random_)}
    unseen = [option for key, option in drawn.items() if key not in seen]
    seen.update(drawn)
    for option in unseen:
        seed = random_.getrandbits(63)
        if is_valid(option, seed):
            changed = _changed(option, numbers, seed, random_, keeps_memory=kind in _OWN_MEMORY)
            return option if changed is None or identity(changed) in seen else changed
    return None


def _changed(
    option: schema.Case, numbers: Numbers, seed: int, random_: random.Random, *, keeps_memory: bool
) -> schema.Case | None:
    """With other scalars, or with expanded arguments; a gradient without other scalars gets other cotangents."""
    scaling = numbers != "stated"
    rescaled = _rescaled(option, numbers == _OTHERS[1], seed, random_) if scaling else None
    if keeps_memory:
        return asked_by_some(option, random_) if rescaled is None and schema.is_gradient(option.operator) else rescaled
    if rescaled is None and schema.is_gradient(option.operator):
        return _otherwise_differentiated(option, seed, random_, frozen=not scaling)
    return rescaled if scaling else _expanded(option, seed, random_)


def _rescaled(option: schema.Case, boldly: bool, seed: int, random_: random.Random) -> schema.Case | None:
    """With other scalars, if torch's results are then as often finite as before."""
    found = rescalings(option, random_, boldly=boldly)
    return next((each for each in found if is_as_finite_as(each, option, seed)), None)


def _otherwise_differentiated(
    option: schema.Case, seed: int, random_: random.Random, frozen: bool
) -> schema.Case | None:
    """A gradient with other cotangents and some of its arguments asking; every second one with expanded ones, too."""
    tries = (otherwise_differentiated(option, random_, frozen=frozen) for _ in range(_TRIES))
    found = next((each for each in tries if has_digits(each, seed)), None)
    if found is None or random_.random() < 0.5:
        return found
    return _expanded(found, seed, random_) or found


def _expanded(option: schema.Case, seed: int, random_: random.Random) -> schema.Case | None:
    found = expanded(option, random_)
    return found if found is not None and is_read_by_its_strides(found, seed) else None
