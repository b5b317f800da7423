"""Parses the values of a sweep's axes (batch sizes, …): ``16,32``, ``256:2048:x2``, ``8:64:8``, and lists of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torchstone.errors import UsageError

MOST_VALUES = 10_000
"""Most values of one axis. A sweep with more would not end in useful time, so more is taken for a typing error."""
_RANGE = re.compile(r"(\d+):(\d+):(x?)(\d+)", re.ASCII)
_HOW = "Write a list such as 16,32 or a range such as 256:2048:x2 or 8:64:8."


def parse_axis(name: str, text: str) -> tuple[int, ...]:
    """The values of an axis, in the order in which they are written, each once. A range includes its end."""
    found: dict[int, None] = {}
    for part in text.split(","):
        for value in _values(name, part.strip()):
            found[value] = None
            if len(found) > MOST_VALUES:
                raise UsageError(f"{name}: '{text}' has more than {MOST_VALUES} values. {_HOW}")
    return tuple(found)


def checked_axis(name: str, values: Iterable[int]) -> tuple[int, ...]:
    """An axis given as numbers, each once. Raises a `UsageError` for no values, or values below 1."""
    found = tuple(dict.fromkeys(values))
    wrong = [value for value in found if not isinstance(value, int) or isinstance(value, bool) or value < 1]
    if wrong or not found:
        told = f"{wrong[0]!r} is no size" if wrong else "there is no value"
        raise UsageError(f"{name}: {told}. Give whole numbers of 1 or more.")
    return found


def _values(name: str, part: str) -> Iterator[int]:
    if part.isascii() and part.isdecimal():
        yield _size(name, part, int(part))
        return
    found = _RANGE.fullmatch(part)
    if found is None:
        raise UsageError(f"{name}: {_what_is_wrong(part)}. {_HOW}")
    first, last, step = _size(name, part, int(found[1])), int(found[2]), int(found[4])
    if last < first:
        raise UsageError(f"{name}: the range '{part}' ends before it begins. {_HOW}")
    if step < (2 if found[3] else 1):
        raise UsageError(f"{name}: the range '{part}' never gets beyond {first}. {_HOW}")
    value = first
    while value <= last:
        yield value
        value = value * step if found[3] else value + step


def _size(name: str, part: str, value: int) -> int:
    if value < 1:
        raise UsageError(f"{name}: '{part}' begins at {value}; sizes are 1 or more. {_HOW}")
    return value


def _what_is_wrong(part: str) -> str:
    if not part:
        return "an empty place between two commas"
    if part.count(":") == 1:
        return f"the range '{part}' has no step, such as {part}:x2"
    return f"'{part}' is neither a size nor a range"
