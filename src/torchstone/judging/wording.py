"""Numbers in messages."""

from __future__ import annotations

from typing import Any

_DIGITS = (6, 9, 17)


def shown(value: Any, digits: int = _DIGITS[0]) -> str:
    return f"{value:.{digits}g}" if isinstance(value, (float, complex)) else str(value)


def shown_apart(one: Any, other: Any) -> tuple[str, str]:
    """Both with as many digits as it takes to tell them apart."""
    pairs = [(shown(one, digits), shown(other, digits)) for digits in _DIGITS]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
