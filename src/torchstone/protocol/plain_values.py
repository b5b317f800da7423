"""Encodes numbers, flags and None that a call returns as JSON values, and decodes them."""

from __future__ import annotations

import math
from typing import Literal

NonFiniteText = Literal["nan", "inf", "-inf"]
"""What JSON has no number for; without this it would arrive as nothing at all."""
Plain = bool | int | float | NonFiniteText | None
"""A number, flag or None as it is sent."""


def sent_plain(value: bool | int | float | None) -> Plain:
    """As a message can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def received_plain(value: Plain) -> bool | int | float | None:
    """What was meant."""
    return float(value) if isinstance(value, str) else value
