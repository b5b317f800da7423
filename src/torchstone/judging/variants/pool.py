"""Chooses the hidden variants of a job: some newly made, most remembered from earlier jobs of the same case.

A hidden variant is the same operator with other sizes, memory or scalars; a job is one kernel on one case. The module
:mod:`torchstone.judging.variants.sizes` makes variants. A new variant must be tried in torch, which costs as much as
judging it. A run of many kernels, or of many attempts at one operator, judges the same case many times. So valid
variants are kept and used again. No job gets all of them, and new ones are added all the time: earlier jobs do not show
which variants a later job gets. A variant contains no values: each call draws its own.
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
from torchstone.judging.variants.expanded_memory import expanded, respects_stride_zero
from torchstone.judging.variants.gradient_variants import (
    has_correct_digits,
    with_expanded_cotangents,
    with_some_gradients,
    with_varied_cotangents,
)
from torchstone.judging.variants.memory import with_permuted_memory
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

_TRIES_PER_VARIANT = 3
"""Attempts to make a variant, for each variant that is wanted."""
_LAYOUT_ONLY_PROBABILITY = 0.25
"""Probability that a case whose only variant is another layout gets it in a job with a single variant."""
_NEW_PROBABILITY = 0.25
"""Probability of making a new variant although a remembered one is available."""
_KEPT_PER_KIND = 3
"""Most remembered variants for each kind and each treatment of scalars. A new one replaces the oldest."""
_MOST_CASES = 256
"""Most cases whose variants are remembered."""
Numbers = Literal["stated", "others", "others, zeros and defaults too"]
"""Floating-point scalars of a variant: as stated, other values, or also other values for zeros and defaults."""
_MOST_UNTIMED_ELEMENTS = 1 << 23
"""Most elements of an untimed case that gets variants of its own size: those of larger cases take long."""
_ELEMENTS_TO_SHOW_SCALARS = 32
"""Elements of a tensor with which a variant shows the effect of other scalars."""
_KINDS_OF_LAYOUT = (rows_apart, whole_blocks)
"""Kinds that exist for their memory layout, which is not changed again."""
_OTHER_NUMBERS: tuple[Numbers, Numbers] = ("others", "others, zeros and defaults too")


def hidden_cases(case: schema.Case, count: int, random_: random.Random) -> list[schema.Case]:
    """Up to ``count`` variants that torch accepts on the CPU; fewer, perhaps none, if it accepts few.

    If ``count`` is above 1, causal attention also gets a variant with more keys than queries and one with fewer.
    """
    if case.jitter:
        found = _pool_of(schema.content_key(case)).draw(case, count, random_)
        return found if count == 1 else [*found, *_causal_attention_cases(case, random_)]
    return (
        _in_other_memory(case, random_)
        if case.layouts and (count > 1 or random_.random() < _LAYOUT_ONLY_PROBABILITY)
        else []
    )


def _causal_attention_cases(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """Causal attention with more keys than queries and with fewer: kernels differ in where its diagonal begins."""
    seed = random_.getrandbits(63)
    return [hidden(each) for each in more_and_fewer_keys(case, random_) if is_valid(each, seed)]


def _in_other_memory(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """The same sizes in other memory, for a case without variants of other sizes that is not too large.

    If the case states scales (``upsample``), one size of the result changes with its scale.
    """
    if sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case)) > MOST_ELEMENTS:
        return []
    tries = [
        hidden(with_permuted_memory(with_another_scale(case, random_), random_)) for _ in range(_TRIES_PER_VARIANT)
    ]
    seed = random_.getrandbits(63)
    others = (each for each in tries if identity(each) != identity(case) and is_valid(each, seed))
    return list(itertools.islice(others, 1))


def with_other_numbers(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    """The stated case with only its floating-point scalars changed, if it has any and is small; else no case.

    Other variants with new scalars also differ in size or memory. A kernel that caches code with compiled-in scalars by
    sizes, strides and dtypes is right on those.
    """
    if not (case.jitter or case.layouts):
        return []
    if sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case)) > MOST_ELEMENTS:
        return []
    found = _rescaled(case, True, random_.getrandbits(63), random_)
    return [] if found is None or identity(found) == identity(case) else [hidden(found)]


def stated_size_cases(case: schema.Case, random_: random.Random) -> list[list[schema.Case]]:
    """Variants of the stated size, each in several forms, for a case that is larger than its other variants.

    A kernel may have a separate path for large sizes, which smaller variants do not use. The forms are not tried
    beforehand, which would take long: the caller uses the first form that torch accepts.
    """
    elements = sum(math.prod(tensor.shape) for tensor in schema.tensors_of(case))
    if not case.jitter or (elements > _MOST_UNTIMED_ELEMENTS and not case.timed):
        return []
    return [
        _with_other_scalars_first(forms, random_) if place else forms
        for place, forms in enumerate(large_options(case, random_))
    ]


def _with_other_scalars_first(forms: list[schema.Case], random_: random.Random) -> list[schema.Case]:
    """The forms with other floating-point scalars, then the forms themselves.

    A kernel's path for large sizes may have scalars compiled in.
    """
    rescaled = [hidden(each) for form in forms for each in rescalings(form, random_, boldly=False)[:1]]
    return [*rescaled, *forms]


@lru_cache(maxsize=_MOST_CASES)
def _pool_of(key: str) -> VariantPool:
    return VariantPool()


class VariantPool:
    """Valid variants of one case, by kind."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Kind, Numbers], deque[tuple[str, schema.Case]]] = {
            (kind, numbers): deque(maxlen=_KEPT_PER_KIND)
            for kind in (*ALWAYS, *KINDS)
            for numbers in (*_OTHER_NUMBERS, "stated")
        }

    def draw(self, case: schema.Case, count: int, random_: random.Random) -> list[schema.Case]:
        """Up to ``count`` variants of different kinds, as far as torch accepts them, in random order.

        - Every kind of ``ALWAYS``, if more variants than these are wanted.
        - Else one of each group of ``GROUPS``, if at least that many are wanted.
        - Then any other kind.

        Every second variant has other floating-point scalars, and every second of those also for zeros and defaults.
        The others have expanded arguments, if torch accepts any.
        """
        found: list[tuple[Kind, schema.Case]] = []
        seen = {identity(case)}
        turns = _turns(random_)
        wanted = _kinds_to_try(count, random_)
        for kinds in wanted:
            tries = ((kind, self._variant_of_kind(case, kind, turns[0], seen, random_)) for kind in kinds)
            for kind, taken in itertools.islice(((kind, taken) for kind, taken in tries if taken is not None), 1):
                found.append((kind, taken))
                turns.rotate(-_shows_scalars(taken, case))
        always = ALWAYS if count > len(ALWAYS) else ()
        others = [kind for kind in (*ALWAYS, *KINDS) if kind not in always]
        kinds = random_.sample(others, len(others))
        for kind in itertools.islice(itertools.cycle(kinds), _TRIES_PER_VARIANT * count):
            if len(found) >= count:
                break
            variant = self._variant_of_kind(case, kind, turns[0], seen, random_)
            if variant is not None:
                found.append((kind, variant))
                turns.rotate(-_shows_scalars(variant, case))
        random_.shuffle(found)
        return _with_one_expanded(found, random_) if wanted else [variant for _, variant in found]

    def _variant_of_kind(
        self, case: schema.Case, kind: Kind, numbers: Numbers, seen: set[str], random_: random.Random
    ) -> schema.Case | None:
        kept = self._kept[kind, numbers]
        variant = _remembered(kept, seen, random_)
        if variant is not None:
            return variant
        variant = _new_variant(case, kind, numbers, seen, random_)
        if variant is not None:
            kept.append((identity(variant), variant))
            seen.add(identity(variant))
        return variant


def _kinds_to_try(count: int, random_: random.Random) -> list[list[Kind]]:
    """For each variant that a job of ``count`` variants must have, the kinds to try for it, one after the other."""
    if count > len(ALWAYS):
        return [[kind] * _TRIES_PER_VARIANT for kind in ALWAYS]
    return [random_.sample(group, len(group)) for group in GROUPS] if count >= len(GROUPS) else []


def _with_one_expanded(found: Sequence[tuple[Kind, schema.Case]], random_: random.Random) -> list[schema.Case]:
    """The variants. If none has an expanded argument and one of them can, that one is changed."""
    variants = [variant for _, variant in found]
    if any(has_expanded(variant) and not _has_empty_tensor(variant) for variant in variants):
        return variants
    for place, (kind, variant) in enumerate(found):
        seed = random_.getrandbits(63)
        keeps = kind in _KINDS_OF_LAYOUT or _has_empty_tensor(variant)
        changed = None if keeps else _with_expanded_argument(variant, seed, random_)
        if changed is not None:
            return [*variants[:place], changed, *variants[place + 1 :]]
    return variants


def _has_empty_tensor(variant: schema.Case) -> bool:
    """Whether a tensor has no elements: then the layout of other tensors hardly matters."""
    return any(0 in recipe.shape for recipe in schema.tensors_of(variant))


def _with_expanded_argument(variant: schema.Case, seed: int, random_: random.Random) -> schema.Case | None:
    if not schema.is_gradient(variant.operator):
        return _expanded(variant, seed, random_)
    tries = (with_expanded_cotangents(variant, random_) for _ in range(_TRIES_PER_VARIANT))
    return next((each for each in tries if has_expanded(each) and has_correct_digits(each, seed)), None)


def has_expanded(case: schema.Case) -> bool:
    """Whether an argument is expanded; for a gradient, whether a cotangent is."""
    counted = schema.is_gradient(case.operator)
    considered = msgspec.structs.replace(case, args=case.args[:1], kwargs={}) if counted else case
    return any(
        step == 0 and size > 1
        for recipe in schema.tensors_of(considered)
        if 0 not in recipe.shape
        for step, size in zip(recipe.strides or (), recipe.shape, strict=False)
    )


def _turns(random_: random.Random) -> deque[Numbers]:
    """How variants treat scalars, in rotation. The most thorough treatment comes first or second."""
    turns: deque[Numbers] = deque([_OTHER_NUMBERS[1], "stated", _OTHER_NUMBERS[0], "stated"])
    turns.rotate(random_.getrandbits(1))
    return turns


def _shows_scalars(variant: schema.Case, case: schema.Case) -> bool:
    """Whether a variant has enough elements to show the effect of other scalars."""
    own, stated = (max((math.prod(t.shape) for t in schema.tensors_of(each)), default=0) for each in (variant, case))
    return own >= min(stated, _ELEMENTS_TO_SHOW_SCALARS)


def _remembered(kept: Iterable[tuple[str, schema.Case]], seen: set[str], random_: random.Random) -> schema.Case | None:
    unseen = [(key, variant) for key, variant in kept if key not in seen]
    if not unseen or random_.random() < _NEW_PROBABILITY:
        return None
    key, variant = random_.choice(unseen)
    seen.add(key)
    return variant


def _new_variant(
    case: schema.Case, kind: Kind, numbers: Numbers, seen: set[str], random_: random.Random
) -> schema.Case | None:
    drawn = {identity(option): option for option in options(case, kind, random_)}
    unseen = [option for key, option in drawn.items() if key not in seen]
    seen.update(drawn)
    for option in unseen:
        seed = random_.getrandbits(63)
        if is_valid(option, seed):
            changed = _with_changes(option, numbers, seed, random_, keeps_memory=kind in _KINDS_OF_LAYOUT)
            return option if changed is None or identity(changed) in seen else changed
    return None


def _with_changes(
    option: schema.Case, numbers: Numbers, seed: int, random_: random.Random, *, keeps_memory: bool
) -> schema.Case | None:
    """The variant with other scalars or with expanded arguments; a gradient without scalars gets other cotangents."""
    scaling = numbers != "stated"
    rescaled = _rescaled(option, numbers == _OTHER_NUMBERS[1], seed, random_) if scaling else None
    if keeps_memory:
        return (
            with_some_gradients(option, random_)
            if rescaled is None and schema.is_gradient(option.operator)
            else rescaled
        )
    if rescaled is None and schema.is_gradient(option.operator):
        return _with_varied_cotangents(option, seed, random_, frozen=not scaling)
    return rescaled if scaling else _expanded(option, seed, random_)


def _rescaled(option: schema.Case, boldly: bool, seed: int, random_: random.Random) -> schema.Case | None:
    """The variant with other scalars, if torch's results have as many finite elements as before; else None."""
    found = rescalings(option, random_, boldly=boldly)
    return next((each for each in found if is_as_finite_as(each, option, seed)), None)


def _with_varied_cotangents(option: schema.Case, seed: int, random_: random.Random, frozen: bool) -> schema.Case | None:
    """A gradient with other cotangents; ``frozen``: for some arguments only. Every second one is also expanded."""
    tries = (with_varied_cotangents(option, random_, frozen=frozen) for _ in range(_TRIES_PER_VARIANT))
    found = next((each for each in tries if has_correct_digits(each, seed)), None)
    if found is None or random_.random() < 0.5:
        return found
    return _expanded(found, seed, random_) or found


def _expanded(option: schema.Case, seed: int, random_: random.Random) -> schema.Case | None:
    found = expanded(option, random_)
    return found if found is not None and respects_stride_zero(found, seed) else None
