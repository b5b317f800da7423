"""Measuring: from raw samples to times, speedups and their intervals."""

from torchstone.measuring.block_ratio import BlockRatio, block_ratio
from torchstone.measuring.differentiating import timing
from torchstone.measuring.light import Attainment, Bound, limit_of
from torchstone.measuring.short_blocks import needs_reference_alone, needs_single_calls
from torchstone.measuring.statistics import (
    Distribution,
    SpeedOutcome,
    Speedup,
    Timing,
    distribution,
    is_precise_enough,
    needs_confirmation,
    outcome_of,
    rests_on_the_judges_clock,
    speedup_of_pairs,
)

__all__ = [
    "Attainment",
    "BlockRatio",
    "Bound",
    "Distribution",
    "SpeedOutcome",
    "Speedup",
    "Timing",
    "block_ratio",
    "distribution",
    "is_precise_enough",
    "limit_of",
    "needs_confirmation",
    "needs_reference_alone",
    "needs_single_calls",
    "outcome_of",
    "rests_on_the_judges_clock",
    "speedup_of_pairs",
    "timing",
]
