"""HOW FAST? From raw samples to an answer with its doubt."""

from torchstone.measuring.statistics import (
    Distribution,
    Outcome,
    Speedup,
    Timing,
    distribution,
    is_precise_enough,
    needs_confirmation,
    outcome_of,
    timing,
)

__all__ = [
    "Distribution",
    "Outcome",
    "Speedup",
    "Timing",
    "distribution",
    "is_precise_enough",
    "needs_confirmation",
    "outcome_of",
    "timing",
]
