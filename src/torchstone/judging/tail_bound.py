"""Chernoff's bound on the probability of at least ``count`` events where ``mean`` are expected, as -log."""

from __future__ import annotations

import math


def unlikelihood(count: float, mean: float) -> float:
    """-log of Chernoff's bound; 0 if ``count`` is no more than ``mean``."""
    if count <= mean:
        return 0.0
    return math.inf if mean <= 0.0 else count * math.log(count / mean) - count + mean
