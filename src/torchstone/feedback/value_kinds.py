"""Names the kind of a value (``NaN``, ``zero``, ``positive``) for authors who must not know the value."""

from __future__ import annotations

import cmath
import math

NAN = "NaN"


def kind_of(shown: str) -> str:
    """The kind of a value, given as text: NaN, inf, -inf, zero, positive, negative, complex, True, False, a value."""
    if shown in ("True", "False"):
        return shown
    try:
        value = complex(shown)
    except ValueError:
        return "a value"
    if cmath.isnan(value):
        return NAN
    if value.imag:
        return "complex" if cmath.isfinite(value) else "inf"
    return _kind_of_real(value.real)


def _kind_of_real(value: float) -> str:
    if value == 0:
        return "zero"
    sign = "" if value > 0 else "-"
    if math.isinf(value):
        return f"{sign}inf"
    return "positive" if value > 0 else "negative"


def plainly(shown: str) -> str:
    """The value itself, with NaN spelled as in feedback."""
    return NAN if shown == "nan" else shown
