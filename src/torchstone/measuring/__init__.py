"""Measuring: runs rounds of timed calls, reads the device's state, computes times, speedups and their intervals."""

from torchstone.measuring.block_ratio import BlockRatio, block_ratio
from torchstone.measuring.long_blocks import is_precise_enough, needs_confirmation, rests_on_the_judges_clock
from torchstone.measuring.measured_times import Distribution, Timing, distribution
from torchstone.measuring.paired_speedup import speedup_of_pairs
from torchstone.measuring.short_blocks import needs_reference_alone, needs_single_calls
from torchstone.measuring.speed_of_light import Attainment, Bound, limit_of
from torchstone.measuring.speedup import NOISE_BAND, SpeedOutcome, Speedup, outcome_of
from torchstone.measuring.timing_of_measurement import timing

__all__ = [
    "NOISE_BAND",
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
