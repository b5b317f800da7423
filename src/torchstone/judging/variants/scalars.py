"""Hidden variants with other scalars: a kernel that ignores ``eps`` is wrong only if it differs from its usual value.

Floating-point scalars among the arguments, and integers given for such, are multiplied by powers of two. So products
with them stay as exact as they were. Each scalar gets its own factor: with one factor for all, a kernel that mistakes
one scalar for another would be right. Their order stays, because some are limits. Small scalars only grow: with a
smaller epsilon, results would be rounding errors.

No factor changes zero, an infinity or an argument that is left out. So some variants replace those by ordinary numbers:
a kernel must implement the operator, not the case.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from torchstone import operators, schema

_SMALL_BELOW = 2.0**-6
"""Scalars below this in magnitude are small: they only grow."""
_SMALL_EXPONENTS = range(2, 9)
"""Exponents of the powers of two by which small scalars are multiplied."""
_EXPONENTS = (-3, -2, 2, 3)
"""The same for other scalars."""
_EIGHTHS_FOR_ZERO = range(2, 13)
"""Replacements of 0, in eighths."""
_EIGHTHS_FOR_INFINITY = range(4, 33)
_SIZE_ARGUMENTS = ("scales", "scale_factors")
"""Beginnings of the names of arguments that determine the size of a result. They stay: torch does not check them
and would access memory out of bounds."""
_PROBABILITY_ARGUMENTS = ("p", "dropout", "dropout_p")
"""Names of probabilities among the arguments of random operators. For other operators ``p`` is the order of a norm."""
_OTHER_PROBABILITIES = (0.5, 0.75, 0.875)
"""Replacements of a probability. One minus each has an exact inverse: dividing by it equals multiplying by that."""
_SELECTING_ARGUMENTS = frozenset({"p", "ord", "norm_type", "exponent", "n", "correction"})
"""Names of arguments that select a function (the order of a norm) or count something if integer: then they stay."""
_LEAST_PROBABILITY_CHANGE = 0.1
"""Least change of a probability: a smaller one does not show in the few elements of a variant."""
_TRIES_FOR_ORDER = 8
"""Draws of new scalars until their order is that of the old ones."""


class _Number(NamedTuple):
    place: int | str
    """Position or name."""
    name: str
    value: float
    fixed: bool
    """Whether it stays, because it selects or counts something. The order of the scalars includes it."""


def rescalings(case: schema.Case, random_: random.Random, *, boldly: bool) -> list[schema.Case]:
    """The case with other floating-point scalars, in several ways, the best first.

    The caller uses the first one that torch accepts. ``boldly``: zeros, infinities and defaults that are not stated
    also become ordinary numbers. If the case has no other scalars, this is done in any case.
    """
    filled = _with_defaults(case)
    bold = [_scaled_separately(filled, random_, boldly=True), _scaled_separately(case, random_, boldly=True)]
    plain = [_scaled_separately(case, random_, boldly=False), _scaled_together(case, random_)]
    kept = {schema.content_key(each.args, each.kwargs) for each in (case, filled)}
    drawn = {schema.content_key(each.args, each.kwargs): each for each in (*bold, *plain) if each is not None}
    found = [each for key, each in drawn.items() if key not in kept]
    usual = [each for each in found if each in plain]
    return found if boldly else usual or found


def _scaled_separately(case: schema.Case, random_: random.Random, *, boldly: bool) -> schema.Case | None:
    """The case with each scalar multiplied by its own factor, such that their order stays; None if no try succeeds."""
    numbers = list(_real_scalars(case))
    for _ in range(_TRIES_FOR_ORDER):
        changed = _ascending(
            numbers, _below_others(numbers, {n.place: _new_value(case, n, random_, boldly) for n in numbers})
        )
        if _in_order(numbers, changed) and _change_differently(numbers, changed):
            return _with_values(case, {n.place: changed[n.place] for n in numbers if not n.fixed})
    return None


def _scaled_together(case: schema.Case, random_: random.Random) -> schema.Case | None:
    """The case with all scalars multiplied by one power of two, which keeps their ratios."""
    numbers = list(_real_scalars(case))
    finite = [n for n in numbers if not n.fixed and math.isfinite(n.value)]
    sizes = [abs(n.value) for n in finite if n.value]
    if not sizes or _may_draw(case):
        return None
    growing = [e for e in _EXPONENTS if e > 0] if min(sizes) < _SMALL_BELOW else list(_EXPONENTS)
    exponent = random_.choice(list(_SMALL_EXPONENTS) if max(sizes) < _SMALL_BELOW else growing)
    changed = {n.place: math.ldexp(n.value, exponent) for n in finite}
    in_order = _in_order(numbers, {n.place: n.value for n in numbers} | changed)
    return _with_values(case, changed) if in_order else None


def _new_value(case: schema.Case, number: _Number, random_: random.Random, boldly: bool) -> float:
    value = number.value
    if number.fixed:
        return value
    if _may_draw(case) and number.name in _PROBABILITY_ARGUMENTS:
        return _other_probability(value, random_)
    if value == 0.0 or math.isinf(value):
        if not boldly or not _is_floating(case):
            return value
        eighths = _EIGHTHS_FOR_INFINITY if value else _EIGHTHS_FOR_ZERO
        return math.copysign(random_.choice(eighths) / 8, value or 1.0)
    exponents: Sequence[int] = _SMALL_EXPONENTS if abs(value) < _SMALL_BELOW else _EXPONENTS
    return math.ldexp(value, random_.choice(exponents))


def _other_probability(value: float, random_: random.Random) -> float:
    """Another probability. 0 and 1 stay: with them nothing is random, and a kernel for such calls need not draw."""
    if not 0.0 < value < 1.0:
        return value
    return random_.choice([each for each in _OTHER_PROBABILITIES if abs(each - value) >= _LEAST_PROBABILITY_CHANGE])


def _below_others(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> dict[int | str, float]:
    """Scale down the replacements of zeros, so that they stay below all positive scalars."""
    least = min((changed[n.place] for n in numbers if n.value > 0.0), default=math.inf)
    factor = min(1.0, least / (2 * max(_EIGHTHS_FOR_ZERO) / 8))
    return {n.place: changed[n.place] * (1.0 if n.value else factor) for n in numbers}


def _ascending(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> dict[int | str, float]:
    """Sort the replacements of equal scalars: of two limits the lower one comes first."""
    found = dict(changed)
    for value in {n.value for n in numbers}:
        places = [n.place for n in numbers if n.value == value and not n.fixed]
        found.update(zip(places, sorted(changed[place] for place in places), strict=True))
    return found


def _in_order(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> bool:
    ordered = sorted(numbers, key=lambda n: n.value)  # stable: equal scalars keep their order
    return all(
        changed[one.place] < changed[other.place]
        or (one.value == other.value and changed[one.place] <= changed[other.place])
        for one, other in itertools.pairwise(ordered)
    )


def _change_differently(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> bool:
    """Whether scalars change differently: not all by one factor, and not all zeros to one value."""
    pairs = [(abs(n.value), abs(changed[n.place])) for n in numbers if changed[n.place] != n.value]
    by_factor = [new / old for old, new in pairs if old and math.isfinite(old)]
    return all(len(group) < 2 or len(set(group)) > 1 for group in (by_factor, [new for old, new in pairs if not old]))


def _may_draw(case: schema.Case) -> bool:
    return operators.traits(case.operator).may_draw


def _is_floating(case: schema.Case) -> bool:
    """Whether tensors are floating-point: for integers, torch does not define the effect of a fractional scalar."""
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case)]
    return any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)


def _with_values(case: schema.Case, changed: Mapping[int | str, float]) -> schema.Case:
    new = {place: _argument(value) for place, value in changed.items()}
    args = tuple(new.get(place, argument) for place, argument in enumerate(case.args))
    kwargs = {name: new.get(name, argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _argument(value: float) -> schema.Argument:
    if math.isinf(value):
        return schema.NonFinite("inf" if value > 0 else "-inf")
    return schema.Scalar(value)


def _real_scalars(case: schema.Case) -> Iterator[_Number]:
    """The real-valued scalars. Scalars in lists are left out: these are often sizes."""
    declared = {argument.name: argument for argument in operators.resolve(case.operator)._schema.arguments}
    places: list[tuple[int | str, str]] = list(enumerate(list(declared)[: len(case.args)]))
    for place, name in (*places, *((name, name) for name in case.kwargs)):
        if name.startswith(_SIZE_ARGUMENTS) or name not in declared:
            continue
        match case.kwargs[name] if isinstance(place, str) else case.args[place]:
            case schema.Scalar(value=float() as value):
                yield _Number(place, name, value, fixed=False)
            case schema.NonFinite(value=("inf" | "-inf") as text):
                yield _Number(place, name, float(text), fixed=False)
            case schema.Scalar(value=int() as value) if "number" in str(declared[name].type).lower():
                real = name not in _SELECTING_ARGUMENTS and not isinstance(value, bool) and _is_floating(case)
                yield _Number(place, name, float(value), fixed=not real)
            case _:
                pass


# Arguments that are left to their defaults.


def _with_defaults(case: schema.Case) -> schema.Case:
    """The case with floating-point arguments stated that were left to their defaults, at their default values.

    They are positional where possible, because a kernel may name its arguments differently. Defaults of 0 are not
    stated: most of them switch off something (``label_smoothing``) that a kernel for such calls need not have.
    """
    declared = operators.resolve(case.operator)._schema.arguments
    unstated = [argument for argument in declared[len(case.args) :] if argument.name not in case.kwargs]
    kwargs = {a.name: schema.Scalar(a.default_value) for a in unstated if a.kwarg_only and _is_to_be_stated(a)}
    args: list[schema.Argument] = []
    stated = 0
    for argument in declared[len(case.args) :]:
        if argument.kwarg_only or argument.name in case.kwargs or not _has_plain_default(argument):
            break
        args.append(schema.Scalar(argument.default_value))
        stated = len(args) if _is_to_be_stated(argument) else stated
    return msgspec.structs.replace(case, args=(*case.args, *args[:stated]), kwargs={**case.kwargs, **kwargs})


def _is_to_be_stated(argument: Any) -> bool:
    value = argument.default_value
    return (
        isinstance(value, float)
        and value != 0.0
        and math.isfinite(value)
        and not argument.name.startswith(_SIZE_ARGUMENTS)
    )


def _has_plain_default(argument: Any) -> bool:
    value = argument.default_value
    return argument.has_default_value() and (value is None or isinstance(value, bool | int | float | str))
