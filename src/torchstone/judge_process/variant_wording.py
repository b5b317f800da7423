"""Describes how a hidden variant differs from the case as the suite gives it, for readers who know only that case."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchstone import operators, schema

_MOST_PARTS = 4
"""Most differences that a message names. The whole case is in the record."""


def difference(stated: schema.Case, variant: schema.Case) -> str:
    """The differences as text: ``shape [2] and strides [2]``; with several tensors ``shape [2] for self``."""
    given = _arguments(stated)
    own_name = len(schema.tensors_of(variant)) > 1
    about_tensors: dict[str, list[str]] = {}
    about_others: list[str] = []
    for name, new in _arguments(variant).items():
        old = given.get(name)
        if isinstance(old, schema.Tensor) and isinstance(new, schema.Tensor):
            parts = list(_tensor_parts(old, new))
            if parts:
                about_tensors.setdefault(_joined(parts), []).append(name)
        elif old != new:
            instead = "" if old is None else f" instead of {schema.describe(old)}"
            about_others.append(f"{name} {schema.describe(new)}{instead}")
    about_others += [f"no {name}" for name in given if name not in _arguments(variant)]
    tensor_texts = [f"{text} for {_joined(names)}" if own_name else text for text, names in about_tensors.items()]
    return _shortened(tensor_texts + about_others) or "the same arguments"


def scale(stated: schema.Case, called: schema.Case) -> str:
    """``inputs were multiplied by 2**-40`` where a call was drawn on another scale than the case states, else empty."""
    for old, new in zip(schema.tensors_of(stated), schema.tensors_of(called), strict=False):
        one, other = old.fill, new.fill
        if isinstance(one, schema.Normal) and isinstance(other, schema.Normal) and 0 < other.std < one.std:
            return f"inputs were multiplied by 2**{round(math.log2(other.std / one.std))}"
    return ""


def _arguments(case: schema.Case) -> dict[str, schema.Argument]:
    """Arguments by name; the tensors of a list one by one, ``tensors[1]``."""
    found: dict[str, schema.Argument] = {}
    for name, argument in operators.named_arguments(case.operator, case.args, case.kwargs):
        if isinstance(argument, schema.Sequence) and operators.tensor_count(argument):
            found |= {f"{name}[{place}]": item for place, item in enumerate(argument.items)}
        else:
            found[name] = argument
    return found


def _tensor_parts(old: schema.Tensor, new: schema.Tensor) -> Iterator[str]:
    if new.shape != old.shape:
        yield f"shape {list(new.shape)}"
    if new.dtype != old.dtype:
        yield f"dtype {new.dtype}"
    if new.strides != old.strides:
        yield "contiguous memory" if new.strides is None else f"strides {list(new.strides)}"
    if new.offset != old.offset:
        yield f"storage offset {new.offset}"
    if (new.shape, new.dtype, new.strides, new.offset) == (old.shape, old.dtype, old.strides, old.offset):
        yield from _fill_parts(old.fill, new.fill)


def _fill_parts(old: schema.Fill, new: schema.Fill) -> Iterator[str]:
    """Differences of drawn values. Called only if nothing else differs, because ranges of indices follow the sizes."""
    if new == old:
        return
    match new:
        case schema.Integers(low=low, high=high) | schema.SortedIntegers(low=low, high=high):
            yield f"values from {low} to {high - 1}"
        case schema.Uniform(low=low, high=high):
            yield f"values from {low:g} to {high:g}"
        case _:
            yield "other values"


def _joined(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _shortened(parts: list[str]) -> str:
    more = len(parts) - _MOST_PARTS
    return ", ".join(parts[:_MOST_PARTS]) + (f" and {more} more differences" if more > 0 else "")
