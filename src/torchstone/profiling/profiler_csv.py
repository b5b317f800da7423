"""Reads CSV as ncu and nsys print it: text before the table, numbers with commas, words for missing values."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator


def rows_after(text: str, column: str) -> Iterator[dict[str, str]]:
    """The rows below the first line that has a column of this name, up to an empty line."""
    lines = iter(text.splitlines())
    header: list[str] = []
    for line in lines:
        cells = _cells(line)
        if column in cells:
            header = cells
            break
    for line in lines:
        cells = _cells(line)
        if not cells:
            return
        if len(cells) == len(header):
            yield dict(zip(header, cells, strict=True))


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=False), [])
    except csv.Error:  # a field beyond the parser's limit, a stray byte
        return []


def number(text: str | None) -> float | None:
    """`1,234.5` -> 1234.5; None for `n/a`, `nan`, an empty text, and negative numbers."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1 << 62 else None


def whole(text: str | None) -> int | None:
    """Like `number`, rounded to an integer."""
    value = number(text)
    return None if value is None else round(value)
