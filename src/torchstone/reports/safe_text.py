"""Formats text and numbers for terminals and tables, and escapes what could control a terminal or break a table."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchstone.schema import OverBound

_LONGEST_TEXT = 500
"""Most characters of a text in a table. The text of a mismatch with its inputs takes about 400."""


def one_line(text: str, limit: int = _LONGEST_TEXT) -> str:
    """The text as one printable line. Collapses white space, escapes control and invisible characters, and cuts out the
    middle of a long text.
    """
    flat = " ".join(text.split())
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in flat)
    if len(safe) <= limit:
        return safe
    half = (limit - 3) // 2
    return f"{safe[:half]} … {safe[-half:]}"


def printable_lines(text: str, limit: int = _LONGEST_TEXT) -> list[str]:
    """The lines of the text, each as by `one_line` but with its indentation."""
    found = []
    for line in text.expandtabs(4).strip("\n").split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        found.append(" " * min(indent, limit) + one_line(line, limit))
    return found


def markdown_cell(text: str, limit: int = _LONGEST_TEXT) -> str:
    """One printable line as by `one_line`, with the characters escaped that Markdown or HTML would interpret."""
    return re.sub(r"([\\`*_|\[\]<>])", r"\\\1", one_line(text, limit))


def counted(count: int, what: str, several: str = "") -> str:
    """``1 operator``, ``2 operators``. `several` is the plural if it is not formed with an s."""
    return f"{count} {what if count == 1 else several or what + 's'}"


def duration(seconds: float) -> str:
    """``12.3 s``, ``2 min 5 s``, ``1 h 3 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def natural(text: str) -> tuple[str | int, ...]:
    """A sorting key that compares numbers within texts as numbers: 8 comes before 16."""
    parts = re.split(r"([0-9]+)", text)  # every second one is a number
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def ratio(value: float | None) -> str:
    """``1.23x``, or a dash if there is no value."""
    return "–" if value is None else f"{value:.2f}x" if value < 1000 else f"{value:.0f}x"


def of_limit(percent: float | None, bounds: Iterable[str], over_limit: int) -> str:
    """``63 % memory``; values over the limit are marked ``over limit``, not cut to 100."""
    if percent is None:
        return "–"
    mark = " over limit" if over_limit else ""
    shown = f"{percent:.0f}" if percent >= 10 else f"{percent:.2g}"
    return f"{shown} % {'/'.join(bounds)}".rstrip() + mark


def over_bound(value: OverBound | None) -> str:
    """``0.14``, ``1,100``: an error over its bound, two significant digits, in full up to a million."""
    if value is None:
        return "–"
    short = f"{float(value):.2g}"
    return f"{float(short):,.0f}" if "e+" in short and float(short) < 1e6 else short


def byte_size(value: int) -> str:
    """``1.5 MiB``: three significant digits in the unit that fits."""
    size, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{value} B" if unit == "B" else f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"


def microseconds(value_ns: float | None) -> str:
    """Nanoseconds as a text in microseconds: three significant digits, no exponent; a dash for None."""
    if value_ns is None:
        return "–"
    value = value_ns / 1000
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
