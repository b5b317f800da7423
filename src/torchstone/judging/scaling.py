"""Variants of a case with other numbers: what an ``eps`` is for shows only where it is another one than always.

Floating-point scalars among the arguments are multiplied by one power of two, so that products with them stay as exact
as they were, and limits keep their order. Small numbers only grow: an epsilon that is smaller still protects from
nothing, and results would be rounding errors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec
import torch

from torchstone import operators, schema

_SMALL = 2.0**-6
_SMALL_EXPONENTS = range(2, 9)
_EXPONENTS = (-3, -2, 2, 3)
_SIZES = ("scales", "scale_factors")
"""How the names of arguments begin that say how large a result is: torch believes them, and reads beside its memory."""


def scaled(case: schema.Case, random_: random.Random) -> schema.Case | None:
    """With other floating-point scalars; None where there are none, or nobody knows what they would do.

    Operators that draw random numbers keep them: probabilities are no numbers like others.
    """
    numbers = [abs(number) for _, number in _numbers(case) if number]
    if not numbers or torch.Tag.nondeterministic_seeded in operators.resolve(case.operator).tags:
        return None
    small = min(numbers) < _SMALL
    exponents = [e for e in _EXPONENTS if e > 0] if small else list(_EXPONENTS)
    exponent = random_.choice(list(_SMALL_EXPONENTS) if max(numbers) < _SMALL else exponents)
    changed = {name: schema.Scalar(math.ldexp(number, exponent)) for name, number in _numbers(case)}
    args = tuple(changed.get(place, argument) for place, argument in enumerate(case.args))
    kwargs = {name: changed.get(name, argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _numbers(case: schema.Case) -> Iterator[tuple[int | str, float]]:
    """The floating-point scalars by place or name; none inside lists, which are sizes as often as not."""
    names = [argument.name for argument in operators.resolve(case.operator)._schema.arguments]
    places: list[tuple[int | str, str]] = list(enumerate(names[: len(case.args)]))
    for place, name in (*places, *((name, name) for name in case.kwargs)):
        argument = case.kwargs[name] if isinstance(place, str) else case.args[place]
        match argument:
            case schema.Scalar(value=float() as value) if not name.startswith(_SIZES):
                yield place, value
            case _:
                pass
