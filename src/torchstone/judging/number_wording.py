"""Formats numbers for messages."""

from __future__ import annotations

import cmath
import math
from typing import Any

_DIGITS = range(6, 18)
"""Significant digits of a number in a message, fewest first; 17 distinguish any two float64 numbers."""
_FEW_DIGITS = range(3, 18)
_WITHOUT_EXPONENT_BELOW = 1e6
"""Factors from a thousand up to this are written in full, ``1,140``: easier to read than ``1.14e+03``."""
_DIFFERENCE_TOLERANCE = 0.1
"""Largest error of the difference between two shown numbers, as a share of their true difference."""


def shown(value: Any, digits: int = _DIGITS[0]) -> str:
    return f"{value:.{digits}g}" if isinstance(value, (float, complex)) else str(value)


def shown_apart(one: Any, other: Any, digits: range = _DIGITS) -> tuple[str, str]:
    """Both numbers, with as many digits as are needed to see their difference."""
    pairs = [(shown(one, count), shown(other, count)) for count in digits]
    return next((pair for pair in pairs if _shows_the_difference(pair, one, other)), pairs[-1])


def shown_factor(error: float, allowed: float) -> str:
    """`` (12.5 times that)`` after the allowed error, with enough digits to differ from 1; empty if not finite."""
    if not allowed or not math.isfinite(error / allowed):
        return ""
    factor = shown_apart(error / allowed, 1.0, _FEW_DIGITS)[0]
    in_full = "e+" in factor and float(factor) < _WITHOUT_EXPONENT_BELOW
    return f" ({float(factor):,.0f} times that)" if in_full else f" ({factor} times that)"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shows_the_difference(pair: tuple[str, str], one: Any, other: Any) -> bool:
    if one == other:
        return True
    if not (isinstance(one, (float, complex)) and isinstance(other, (float, complex))):
        return pair[0] != pair[1]
    difference = complex(one) - complex(other)
    if not cmath.isfinite(difference):
        return pair[0] != pair[1]
    deviation = complex(pair[0]) - complex(pair[1]) - difference
    allowed = _DIFFERENCE_TOLERANCE * math.hypot(difference.real, difference.imag)
    return pair[0] != pair[1] and math.hypot(deviation.real, deviation.imag) <= allowed
