"""Encodes numbers, flags and None that a call returns as JSON values, and decodes them."""

from __future__ import annotations

import math
from typing import Literal

NonFiniteText = Literal["nan", "inf", "-inf"]
"""Text for floats that JSON cannot represent. Without it they would arrive as null."""
Plain = bool | int | float | NonFiniteText | None
"""A number, flag or None in the form in which it is sent."""


def sent_plain(value: bool | int | float | None) -> Plain:
    """Encode a plain value for a message."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def received_plain(value: Plain) -> bool | int | float | None:
    """Decode a plain value of a message."""
    return float(value) if isinstance(value, str) else value
