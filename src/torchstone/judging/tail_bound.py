"""Tail bound of a count: how unlikely it is to see an event that often."""

from __future__ import annotations

import math


def unlikelihood(count: float, mean: float) -> float:
    """Chernoff: so many of what comes ``mean`` times on average, or more, have less than exp(-this) of a chance."""
    if count <= mean:
        return 0.0
    return math.inf if mean <= 0.0 else count * math.log(count / mean) - count + mean
