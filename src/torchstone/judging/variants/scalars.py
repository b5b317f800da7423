"""Hidden variants with other scalars: the effect of an ``eps`` shows only if it differs from its usual value.

Floating-point scalars among the arguments, and integers given for such, are multiplied by powers of two. So products
with them stay as exact as they were. Each scalar gets its own factor: a kernel that mistakes one for another is right
as long as all change together. Their order stays, because some are limits. Small numbers only grow: with a smaller
epsilon, results would be rounding errors.

No factor changes zero or an infinity, or an argument that is left out. So some variants have ordinary numbers for
those and for defaults: a kernel must implement the operator, not the case.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from torchstone import operators, schema

_SMALL = 2.0**-6
_SMALL_EXPONENTS = range(2, 9)
_EXPONENTS = (-3, -2, 2, 3)
_EIGHTHS_FOR_ZERO = range(2, 13)
_EIGHTHS_FOR_INFINITY = range(4, 33)
_SIZES = ("scales", "scale_factors")
"""Beginnings of the names of arguments that state how large a result is. They stay: torch does not check them
and would read beside its memory."""
_PROBABILITIES = ("p", "dropout", "dropout_p")
"""Names of arguments of operators that draw. Of others ``p`` is the order of a norm."""
_PROBABLE = (0.5, 0.75, 0.875)
"""One minus each of these has an exact inverse: dividing by it equals multiplying by the inverse."""
_ORDERS = frozenset({"p", "ord", "norm_type", "exponent", "n", "correction"})
"""Names of arguments that, if whole, select a function (the order of a norm) or count something: they stay."""
_LEAST_APART = 0.1
"""Least difference of a changed probability: less does not show in the few elements of a variant."""
_ORDERLY_TRIES = 8


class _Number(NamedTuple):
    place: int | str
    """Position or name."""
    name: str
    value: float
    fixed: bool
    """Whether it stays, because it selects or counts something. It still takes part in the order of the numbers."""


def rescalings(case: schema.Case, random_: random.Random, *, boldly: bool) -> list[schema.Case]:
    """With other floating-point scalars, the best first. The caller uses the first that torch takes.

    ``boldly``: also ordinary numbers for zeros, infinities and defaults that are not stated. Without any other
    scalars, every variant is bold.
    """
    filled = _with_defaults(case)
    bold = [_apart(filled, random_, boldly=True), _apart(case, random_, boldly=True)]
    plain = [_apart(case, random_, boldly=False), _together(case, random_)]
    kept = {schema.content_key(each.args, each.kwargs) for each in (case, filled)}
    drawn = {schema.content_key(each.args, each.kwargs): each for each in (*bold, *plain) if each is not None}
    found = [each for key, each in drawn.items() if key not in kept]
    usual = [each for each in found if each in plain]
    return found if boldly else usual or found


def _apart(case: schema.Case, random_: random.Random, *, boldly: bool) -> schema.Case | None:
    """Each scalar times its own factor, such that their order stays."""
    numbers = list(_numbers(case))
    for _ in range(_ORDERLY_TRIES):
        changed = _ascending(
            numbers, _below_others(numbers, {n.place: _other(case, n, random_, boldly) for n in numbers})
        )
        if _in_order(numbers, changed) and _are_parted(numbers, changed):
            return _with(case, {n.place: changed[n.place] for n in numbers if not n.fixed})
    return None


def _together(case: schema.Case, random_: random.Random) -> schema.Case | None:
    """All scalars times one power of two, which keeps their ratios."""
    numbers = list(_numbers(case))
    finite = [n for n in numbers if not n.fixed and math.isfinite(n.value)]
    sizes = [abs(n.value) for n in finite if n.value]
    if not sizes or _draws(case):
        return None
    growing = [e for e in _EXPONENTS if e > 0] if min(sizes) < _SMALL else list(_EXPONENTS)
    exponent = random_.choice(list(_SMALL_EXPONENTS) if max(sizes) < _SMALL else growing)
    changed = {n.place: math.ldexp(n.value, exponent) for n in finite}
    in_order = _in_order(numbers, {n.place: n.value for n in numbers} | changed)
    return _with(case, changed) if in_order else None


def _other(case: schema.Case, number: _Number, random_: random.Random, boldly: bool) -> float:
    value = number.value
    if number.fixed:
        return value
    if _draws(case) and number.name in _PROBABILITIES:
        return _other_probability(value, random_)
    if value == 0.0 or math.isinf(value):
        if not boldly or not _is_floating(case):
            return value
        eighths = _EIGHTHS_FOR_INFINITY if value else _EIGHTHS_FOR_ZERO
        return math.copysign(random_.choice(eighths) / 8, value or 1.0)
    exponents: Sequence[int] = _SMALL_EXPONENTS if abs(value) < _SMALL else _EXPONENTS
    return math.ldexp(value, random_.choice(exponents))


def _other_probability(value: float, random_: random.Random) -> float:
    """Probabilities 0 and 1 stay: with them nothing is drawn, and a kernel for such calls need not draw."""
    if not 0.0 < value < 1.0:
        return value
    return random_.choice([each for each in _PROBABLE if abs(each - value) >= _LEAST_APART])


def _below_others(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> dict[int | str, float]:
    """Scale down the replacements of zeros, so that they stay below all positive scalars."""
    least = min((changed[n.place] for n in numbers if n.value > 0.0), default=math.inf)
    room = min(1.0, least / (2 * max(_EIGHTHS_FOR_ZERO) / 8))
    return {n.place: changed[n.place] * (1.0 if n.value else room) for n in numbers}


def _ascending(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> dict[int | str, float]:
    """Sort the replacements of equal numbers: of two limits the lower one comes first."""
    found = dict(changed)
    for value in {n.value for n in numbers}:
        places = [n.place for n in numbers if n.value == value and not n.fixed]
        found.update(zip(places, sorted(changed[place] for place in places), strict=True))
    return found


def _in_order(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> bool:
    ordered = sorted(numbers, key=lambda n: n.value)  # stable: equal ones as they come
    return all(
        changed[one.place] < changed[other.place]
        or (one.value == other.value and changed[one.place] <= changed[other.place])
        for one, other in itertools.pairwise(ordered)
    )


def _are_parted(numbers: Sequence[_Number], changed: Mapping[int | str, float]) -> bool:
    """Whether scalars that change do not all change alike: not all by one factor, nor all zeros to one value."""
    pairs = [(abs(n.value), abs(changed[n.place])) for n in numbers if changed[n.place] != n.value]
    by_factor = [new / old for old, new in pairs if old and math.isfinite(old)]
    return all(len(group) < 2 or len(set(group)) > 1 for group in (by_factor, [new for old, new in pairs if not old]))


def _draws(case: schema.Case) -> bool:
    return operators.traits(case.operator).may_draw


def _is_floating(case: schema.Case) -> bool:
    """Whether tensors are floating-point: for integers, torch does not define the effect of a fractional scalar."""
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case)]
    return any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)


def _with(case: schema.Case, changed: Mapping[int | str, float]) -> schema.Case:
    new = {place: _argument(value) for place, value in changed.items()}
    args = tuple(new.get(place, argument) for place, argument in enumerate(case.args))
    kwargs = {name: new.get(name, argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _argument(value: float) -> schema.Argument:
    if math.isinf(value):
        return schema.NonFinite("inf" if value > 0 else "-inf")
    return schema.Scalar(value)


def _numbers(case: schema.Case) -> Iterator[_Number]:
    """The real-valued scalars. None inside lists, which are often sizes."""
    declared = {argument.name: argument for argument in operators.resolve(case.operator)._schema.arguments}
    places: list[tuple[int | str, str]] = list(enumerate(list(declared)[: len(case.args)]))
    for place, name in (*places, *((name, name) for name in case.kwargs)):
        if name.startswith(_SIZES) or name not in declared:
            continue
        match case.kwargs[name] if isinstance(place, str) else case.args[place]:
            case schema.Scalar(value=float() as value):
                yield _Number(place, name, value, fixed=False)
            case schema.NonFinite(value=("inf" | "-inf") as text):
                yield _Number(place, name, float(text), fixed=False)
            case schema.Scalar(value=int() as value) if "number" in str(declared[name].type).lower():
                real = name not in _ORDERS and not isinstance(value, bool) and _is_floating(case)
                yield _Number(place, name, float(value), fixed=not real)
            case _:
                pass


# Arguments that are left to their defaults.


def _with_defaults(case: schema.Case) -> schema.Case:
    """The case with floating-point arguments stated that were left to their defaults, at their default values.

    By position where possible, because a kernel may name its arguments differently. Defaults of 0 stay left out: most
    switch something off (``label_smoothing``) that a kernel for such calls need not have.
    """
    declared = operators.resolve(case.operator)._schema.arguments
    behind = [argument for argument in declared[len(case.args) :] if argument.name not in case.kwargs]
    kwargs = {a.name: schema.Scalar(a.default_value) for a in behind if a.kwarg_only and _is_to_be_stated(a)}
    args: list[schema.Argument] = []
    stated = 0
    for argument in declared[len(case.args) :]:
        if argument.kwarg_only or argument.name in case.kwargs or not _is_plain(argument):
            break
        args.append(schema.Scalar(argument.default_value))
        stated = len(args) if _is_to_be_stated(argument) else stated
    return msgspec.structs.replace(case, args=(*case.args, *args[:stated]), kwargs={**case.kwargs, **kwargs})


def _is_to_be_stated(argument: Any) -> bool:
    value = argument.default_value
    return isinstance(value, float) and value != 0.0 and math.isfinite(value) and not argument.name.startswith(_SIZES)


def _is_plain(argument: Any) -> bool:
    value = argument.default_value
    return argument.has_default_value() and (value is None or isinstance(value, bool | int | float | str))
