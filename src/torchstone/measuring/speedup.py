"""A speedup with its 95 % interval, and the outcome that follows: faster, slower, same or undecided."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import msgspec

from torchstone.measuring import confirmation
from torchstone.measuring.student_t import Z_95

SpeedOutcome = Literal["faster", "slower", "same", "undecided"]
NOISE_BAND = 0.03
"""Relative differences below this count as noise: alignment, clocks and other programs cause as much."""
FAR_RATIO = 1.10
"""If the ratio, or its inverse, exceeds this and the interval still contains 1, the interval is too wide to use."""
DECISION_WIDTH = 1.5
"""A kernel is faster or slower only if its interval, widened by this factor, is clear of the noise band. A run times
dozens of operators, and at 95 % one or two would be wrong in every run."""
LEAST_SHARE = 0.05
"""Least share of a call that must be the party's own time. A smaller one cannot be told from the cost of calling."""
MUCH_SLOWER_RATIO = 0.5
"""If the whole interval lies below this ratio, the candidate is not measured more precisely."""
_Z_POWER_80 = NormalDist().inv_cdf(0.8)


class Speedup(msgspec.Struct, frozen=True):
    """Reference time over candidate time, estimated from blocks of both that were taken in the same rounds."""

    ratio: float
    """Above 1: the candidate is faster."""
    low: float
    """Lower end of the 95 % interval over rounds."""
    high: float
    """Upper end of the same interval."""
    outcome: SpeedOutcome
    """`faster` or `slower` only if the interval, widened by DECISION_WIDTH, lies beyond the noise band. `faster` also
    needs confirmation by single calls. `same` only if the interval lies within ``same_within``."""
    one_at_a_time: confirmation.Confirmation = "open"
    """Whether single calls confirm the ratio. `faster` needs it. If they refute the ratio of long blocks, ratio and
    interval are those of single calls."""
    judged_low: float | None = None
    """If the ratio is from the workers' times: the interval of the judge's own clock, which confirms them."""
    judged_high: float | None = None
    minimum_detectable_effect: float = math.nan
    """The smallest true difference (0.05 is 5 %) that a measurement with this noise detects with probability 0.8."""
    capped: str = ""
    """Why the ratio is smaller than that of the blocks; empty if it is not."""
    same_within: float = NOISE_BAND
    """Relative difference that counts as `same`: noise, and on the CPU the placement of memory."""


def outcome_of(low: float, high: float, same_within: float = NOISE_BAND) -> SpeedOutcome:
    """The outcome that follows from a 95 % interval of a speedup.

    ``same_within``: the relative difference that counts as `same`. It exceeds the noise band if two processes with the
    same code differ by more: an interval that includes that difference never fits into the noise band.
    """
    fastest = 1 + NOISE_BAND
    reach = (high / low) ** ((DECISION_WIDTH - 1) / 2)
    if low / reach > fastest:
        return "faster"
    if high * reach < 1 / fastest:
        return "slower"
    if 1 / (1 + same_within) <= low and high <= 1 + same_within:
        return "same"
    return "undecided"


def minimum_detectable_effect(half_width: float) -> float:
    """The smallest true difference detected with probability 0.8; ``half_width`` is of the interval's logarithm."""
    return math.expm1(math.log1p(NOISE_BAND) + half_width * (1 + _Z_POWER_80 / Z_95))


def has_useless_interval(speedup: Speedup) -> bool:
    """Whether the ratio is far from 1, the interval contains 1, and single calls do not confirm the ratio."""
    is_far = abs(math.log(speedup.ratio)) > math.log(FAR_RATIO)
    return is_far and speedup.low <= 1 <= speedup.high and speedup.one_at_a_time != "confirmed"
