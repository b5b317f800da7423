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
"""Relative differences below this count as noise: alignment, clocks and neighbours cause as much."""
FAR = 1.10
"""Ratio, or its inverse, from which an interval that contains 1 is too wide to say anything."""
DECISION_WIDTH = 1.5
"""A kernel is faster or slower only if its interval, widened by this factor, is clear of the noise band. A run times
dozens of operators, and at 95 % one or two would be wrong in every run."""
LEAST_SHARE = 0.05
"""Least share of a call that must be the party's own time; below, it cannot be told from the cost of calling."""
HOPELESS = 0.5
"""Ratio below which a candidate is not measured more precisely."""
_Z_POWER_80 = NormalDist().inv_cdf(0.8)


class Speedup(msgspec.Struct, frozen=True):
    """Reference time over candidate time, estimated from blocks of both that were taken in the same rounds."""

    ratio: float
    """Above 1: the candidate is faster."""
    low: float
    """Lower end of the 95 % interval over rounds."""
    high: float
    """Upper end."""
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
    """The smallest true difference (0.05 is 5 %) that a measurement this noisy would notice four times of five."""
    capped: str = ""
    """Why the ratio is smaller than what the blocks alone show; empty: it is not."""
    same_within: float = NOISE_BAND
    """Relative difference that counts as `same`: noise, and on the CPU the placement of memory."""


def outcome_of(low: float, high: float, same_within: float = NOISE_BAND) -> SpeedOutcome:
    """What a 95 % interval of a speedup allows to say.

    ``same_within``: the relative difference that counts as `same`. It is more than noise where two processes with the
    same code differ by more: an interval that allows for that difference never fits into the noise band.
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
    return math.expm1(math.log1p(NOISE_BAND) + half_width * (1 + _Z_POWER_80 / Z_95))


def says_nothing(speedup: Speedup) -> bool:
    """Whether the ratio is far from 1 on either side, the interval contains 1, and nothing else confirms the ratio."""
    is_far = abs(math.log(speedup.ratio)) > math.log(FAR)
    return is_far and speedup.low <= 1 <= speedup.high and speedup.one_at_a_time != "confirmed"
