"""Computes times per call, the speedup and its caps from short blocks of calls, as taken on the CPU.

A block is several calls that are timed together. A pair is one block of each party, taken one after another. Other
programs only make blocks longer. So each party's time is the mean of the lowest third of its blocks, minus the
shim's, and the ratio of two such times is the speedup. Its interval is a bootstrap over pairs. Swapping the parties
inverts ratio and interval.

Ratios above and below 1 are treated alike while the interval contains 1: a ratio far from 1 is then unresolved. If the
interval lies above 1, or the ratio is far above 1, the kernel claims a speed. Such a claim must be confirmed by calls
that wait for each other, and by the reference's time without the candidate. A smaller ratio found there caps the
speedup. Without confirmation the speedup is unresolved. No ratio is replaced by 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from torchstone.measuring.block_ratio import resampled_rounds
from torchstone.measuring.measured_times import Timing, distribution
from torchstone.measuring.repeated_calls import repeated_call_ns
from torchstone.measuring.speed_of_light import Attainment, attainment, has_limit
from torchstone.measuring.speedup import (
    FAR_RATIO,
    LEAST_SHARE,
    MUCH_SLOWER_RATIO,
    NOISE_BAND,
    Speedup,
    has_useless_interval,
    minimum_detectable_effect,
    outcome_of,
)
from torchstone.measuring.student_t import Z_95, student_t_95
from torchstone.measuring.trimmed_means import Floats, low_third
from torchstone.schema import Block, Measurement, Party, Way

METHOD = "short-blocks"
PLACEMENT_DOUBT = 0.05
"""Relative difference of the times of the same code in two processes, because their memory lies at other addresses. It
lasts as long as both live, so more blocks do not show it. Measured by benchmarks/cpu_number.py."""
SAME_WITHIN = NOISE_BAND + PLACEMENT_DOUBT
"""Relative difference that counts as `same`. Every interval includes PLACEMENT_DOUBT, so none fits into the noise band
alone."""
MOST_HALF_WIDTH = 0.25
"""Largest relative half width of an interval. With a wider one the speedup is unresolved."""
ALLOWANCE = 1.1
"""Largest factor by which the ratio of blocks may exceed that of single calls: caches are warmer in blocks."""
DOUBTFUL_HALF_WIDTH = 0.08
"""Relative half width of an interval from which more pairs are taken."""
DOUBTFUL = 1.25
"""More pairs are taken if the interval excludes 1 but the ratio is within this factor of 1: it may be chance."""
LEAST_PAIRS = 6
"""Least number of pairs for an interval."""


class Ratio(NamedTuple):
    """Reference time divided by candidate time, with its 95 % interval."""

    ratio: float
    low: float
    high: float


class OwnTime(NamedTuple):
    """A party's time per block minus the shim's."""

    own_ns: float
    floor_ns: float
    """A time below this cannot be told from the cost of calling."""
    drawn_ns: Floats
    """``own_ns`` of each bootstrap sample, no less than the floor."""


class Limit(NamedTuple):
    """An upper limit for a claimed speed, from another measurement, with its reason."""

    found: Ratio
    why: str


def timing_of_short_blocks(measurement: Measurement) -> Timing:
    """Compute times per call and the speedup of a measurement by short blocks."""
    blocks = _deciding_blocks(measurement.blocks)
    pairs = _pairs(blocks)
    if not pairs["candidate"].size:
        raise ValueError("a measurement needs at least one pair of the candidate and the reference")
    calls = _most_calls(blocks)
    shim_ns = _low_ns(pairs["shim"])
    candidate_ns, reference_ns = ((_low_ns(pairs[party]) - shim_ns) / calls for party in ("candidate", "reference"))
    warm_factor = _warm_cache_factor(measurement, reference_ns)
    candidate_ns, reference_ns = warm_factor * candidate_ns, warm_factor * reference_ns
    speedup, unresolved = _speedup(measurement)
    if speedup is not None and speedup.capped:
        candidate_ns = reference_ns / speedup.ratio
    return Timing(
        candidate_ns=candidate_ns,
        reference_ns=reference_ns,
        shim_ns=shim_ns / calls,
        rounds=int(pairs["candidate"].size),
        candidate_rounds_ns=distribution(warm_factor * (pairs["candidate"] - shim_ns) / calls),
        reference_rounds_ns=distribution(warm_factor * (pairs["reference"] - shim_ns) / calls),
        speedup=speedup,
        unresolved=unresolved,
        attainment=_attainment(measurement, speedup, candidate_ns, reference_ns),
        candidate_call_ns=candidate_ns,
        reference_call_ns=reference_ns,
    )


def _warm_cache_factor(measurement: Measurement, reference_ns: float) -> float:
    """The reference's time per call on warm caches, divided by that in blocks. 1 if calls were not repeated.

    Both parties' times are multiplied by it, so that their ratio stays that of blocks.
    """
    repeated_ns = repeated_call_ns(measurement.blocks)
    return 1.0 if repeated_ns is None or reference_ns <= 0 else repeated_ns / reference_ns


def is_precise(blocks: Sequence[Block], half_width: float) -> bool:
    """Whether more pairs would change little: the interval is this narrow, or the candidate is much slower.

    The interval leaves out PLACEMENT_DOUBT, which more pairs do not reduce.
    """
    found, _ = _in_blocks(blocks, doubt=0.0)
    return found is not None and (found.high < MUCH_SLOWER_RATIO or math.log(found.high / found.low) / 2 <= half_width)


def is_doubtful(blocks: Sequence[Block]) -> bool:
    """Whether the interval is wide, or excludes 1, on either side, by so little that it may be chance."""
    found, _ = _in_blocks(blocks)
    if found is None or math.log(found.high / found.low) / 2 > DOUBTFUL_HALF_WIDTH:
        return True
    return (found.low > 1 or found.high < 1) and abs(math.log(found.ratio)) < math.log(DOUBTFUL)


def needs_single_calls(blocks: Sequence[Block]) -> bool:
    """Whether blocks of several calls claim a speed that calls one at a time neither confirm nor refute yet."""
    found, _ = _in_blocks(blocks)
    if found is None or _is_too_wide(found) or not claims_speed(found):
        return False
    return _most_calls(_deciding_blocks(blocks)) > 1 and _confirmation(blocks, found) == "open"


def needs_reference_alone(measurement: Measurement) -> bool:
    """Whether a speed is claimed that calls one at a time have not refuted."""
    found, _ = _as_confirmed(measurement)
    return found is not None and claims_speed(found)


def claims_speed(speedup: Speedup) -> bool:
    """Whether the ratio is beyond noise, and its interval lies above 1 or the ratio is far above 1."""
    return speedup.ratio > 1 + NOISE_BAND and (speedup.low > 1 or speedup.ratio > FAR_RATIO)


def _speedup(measurement: Measurement) -> tuple[Speedup | None, str]:
    """The speedup reduced to what is confirmed, or None and why there is none."""
    found, why = _as_confirmed(measurement)
    if found is None or not claims_speed(found):
        return found, why
    if measurement.never_alone:
        return (
            None,
            f"{found.ratio:.2f}x while the candidate was loaded; not confirmed without it: {measurement.never_alone}",
        )
    for limit in _limits(measurement, found):
        found = _reduced_to(found, limit)
    return _or_why_unresolved(found)


def _as_confirmed(measurement: Measurement) -> tuple[Speedup | None, str]:
    """The speedup that the blocks show, checked with calls one at a time; or None, and the reason as a text.

    A speedup far enough above 1 needs this check. If calls one at a time show a lower ratio, that ratio is returned. If
    they show nothing yet, there is no speedup. The text is empty if there is one.
    """
    blocks = measurement.blocks
    found, why = _in_blocks(blocks)
    if found is None:
        return None, why
    if _is_too_wide(found) or not claims_speed(found) or _most_calls(_deciding_blocks(blocks)) == 1:
        return _or_why_unresolved(found)
    says = _confirmation(blocks, found)
    single = _one_at_a_time(blocks)
    if says == "open" or single is None:
        return (
            None,
            f"{found.ratio:.2f}x in blocks of {_most_calls(_deciding_blocks(blocks))} "
            f"calls, which single calls do not confirm",
        )
    shown = f"calls one at a time show {single.ratio:.2f}x"
    if says == "refuted":
        held = _reduced_to(found, Limit(single, shown))
        return _or_why_unresolved(msgspec.structs.replace(held, one_at_a_time="refuted"))
    most = Ratio(*(ALLOWANCE * each for each in single))
    return _or_why_unresolved(
        _reduced_to(msgspec.structs.replace(found, one_at_a_time="confirmed"), Limit(most, shown))
    )


def _or_why_unresolved(speedup: Speedup) -> tuple[Speedup | None, str]:
    if _is_too_wide(speedup) or has_useless_interval(speedup):
        return None, f"its interval, {speedup.low:.2f} to {speedup.high:.2f}, is too wide"
    if speedup.capped and speedup.ratio < 1 / ALLOWANCE:  # a claimed speed that is capped must not end as `slower`
        return None, f"contradictory: {speedup.capped}"
    return speedup, ""


def _is_too_wide(speedup: Speedup) -> bool:
    return math.log(speedup.high / speedup.low) / 2 > math.log1p(MOST_HALF_WIDTH)


def _reduced_to(speedup: Speedup, limit: Limit) -> Speedup:
    """The speedup reduced to the limit. If the limit lies within the interval, only the interval grows."""
    low = min(speedup.low, limit.found.low)
    if limit.found.ratio >= speedup.low:
        return _with_interval(speedup, low, speedup.high)
    ratio = limit.found.ratio
    below = math.hypot(math.log(speedup.ratio / speedup.low), math.log(ratio / limit.found.low))
    above = math.hypot(math.log(speedup.high / speedup.ratio), math.log(limit.found.high / ratio))
    why = f"{speedup.ratio:.2f}x in the blocks; {limit.why}"
    held = msgspec.structs.replace(speedup, ratio=ratio, capped=why)
    return _with_interval(held, ratio * math.exp(-below), ratio * math.exp(above))


def _with_interval(speedup: Speedup, low: float, high: float) -> Speedup:
    effect = minimum_detectable_effect(math.log(high / low) / 2)
    outcome = outcome_of(low, high, speedup.same_within)
    return msgspec.structs.replace(speedup, low=low, high=high, outcome=outcome, minimum_detectable_effect=effect)


def _in_blocks(blocks: Sequence[Block], doubt: float = PLACEMENT_DOUBT) -> tuple[Speedup | None, str]:
    """The speedup that the blocks alone show, or None and why they show none."""
    pairs = _pairs(_deciding_blocks(blocks))
    if pairs["candidate"].size < LEAST_PAIRS:
        return None, f"{pairs['candidate'].size} pairs of blocks; {LEAST_PAIRS} are needed for an interval"
    parties = {party: _own_time(pairs[party], pairs["shim"]) for party in ("candidate", "reference")}
    for party, own in parties.items():
        if own.own_ns <= own.floor_ns:
            return None, f"the {party}'s own time cannot be separated from the overhead of calling it"
    found = _ratio(parties["reference"], parties["candidate"], pairs["candidate"].size, doubt)
    shown = Speedup(*found, "undecided", same_within=SAME_WITHIN)
    return _with_interval(shown, found.low, found.high), ""


def _limits(measurement: Measurement, found: Speedup) -> Iterator[Limit]:
    """The limits that a claimed speed must not exceed."""
    blocks, calls = _deciding_blocks(measurement.blocks), _most_calls(_deciding_blocks(measurement.blocks))
    pairs = _pairs(blocks)
    count = pairs["candidate"].size
    candidate, reference = (_own_time(pairs[party], pairs["shim"]) for party in ("candidate", "reference"))
    handled = _plus_ns(candidate, _handling_ns(measurement.blocks, "called", calls))
    charged = _ratio(reference, handled, count)
    if charged.ratio <= 1 + NOISE_BAND:
        yield Limit(charged, f"{charged.ratio:.2f}x if the worker's handling of a call is charged to the candidate")
    else:  # only widens the interval: the candidate may have saved this time, or not
        yield Limit(Ratio(found.low, charged.low, found.high), "")
    yield from _limits_alone(measurement.blocks, candidate, calls, count)
    if measurement.preparable_share:
        left = 1 - measurement.preparable_share
        share = f"{measurement.preparable_share:.0%} of the bytes of the results are the same for all inputs"
        yield Limit(_scaled(found, left), share)
    if measurement.relaying_ns:
        laid_out = _ratio(reference, _plus_ns(candidate, calls * measurement.relaying_ns), count)
        yield Limit(laid_out, f"{laid_out.ratio:.2f}x with the time to copy the results to the reference's strides")


def _scaled(speedup: Speedup, factor: float) -> Ratio:
    return Ratio(factor * speedup.ratio, factor * speedup.low, factor * speedup.high)


def _limits_alone(blocks: Sequence[Block], candidate: OwnTime, calls: int, count: int) -> Iterator[Limit]:
    """Limits by the reference's time before the candidate was loaded and after it ended, each with its own shim."""
    for way, when in (("beforehand", "before the candidate was loaded"), ("alone", "after it had ended")):
        of_moment = [block for block in blocks if block.way == way]
        found = _pairs(of_moment)
        if found["reference"].size >= LEAST_PAIRS:
            reference = _of_more_calls(_own_time(found["reference"], found["shim"]), calls / _most_calls(of_moment))
            most = _ratio(reference, candidate, min(count, found["reference"].size))
            within = Ratio(*(each * (1 + NOISE_BAND) for each in most))
            yield Limit(within, f"the reference took {most.ratio:.2f} times the candidate's time {when}")


def _confirmation(blocks: Sequence[Block], speedup: Speedup) -> str:
    """Whether calls one at a time confirm the speed: `confirmed`, `refuted` or `open`."""
    single, charged = _one_at_a_time(blocks, is_charged=False), _one_at_a_time(blocks)
    if single is None or charged is None:
        return "open"
    if single.high < speedup.ratio / ALLOWANCE:
        return "refuted"
    return "confirmed" if charged.low > 1 else "open"


def _one_at_a_time(blocks: Sequence[Block], is_charged: bool = True) -> Ratio | None:
    """The ratio of chained or single calls; None: there are too few, or a party's own time does not show in them.

    `is_charged`: add to the candidate's time what the worker does around and between calls, because the candidate could
    do this faster. Reduce the reference's time to that in its blocks of several calls, if that is less.
    """
    single = [b for b in blocks if b.way == "chained"] or [b for b in blocks if b.way == "called" and b.calls == 1]
    pairs, calls = _pairs(single), _most_calls(single)
    if pairs["candidate"].size < LEAST_PAIRS or (
        calls == _most_calls(_deciding_blocks(blocks)) and single[0].way == "called"
    ):
        return None
    candidate, reference = (_own_time(pairs[party], pairs["shim"]) for party in ("candidate", "reference"))
    if is_charged:
        candidate = _plus_ns(candidate, _handling_ns(single, single[0].way, calls))
        warm_ns = _reference_ns(blocks) * calls
        if 0 < warm_ns < reference.own_ns:
            reference = _plus_ns(reference, warm_ns - reference.own_ns)
    if candidate.own_ns <= candidate.floor_ns or reference.own_ns <= reference.floor_ns:
        return None
    return _ratio(reference, candidate, pairs["candidate"].size)


def _reference_ns(blocks: Sequence[Block]) -> float:
    """The reference's time per call in the deciding blocks."""
    pairs = _pairs(_deciding_blocks(blocks))
    return (_low_ns(pairs["reference"]) - _low_ns(pairs["shim"])) / _most_calls(_deciding_blocks(blocks))


def _handling_ns(blocks: Sequence[Block], way: Way, calls: int) -> float:
    """Time that the shim's worker reports for a block. A candidate could do all of this handling faster."""
    claimed = [b.claimed_ns for b in blocks if b.party == "shim" and b.way == way and b.calls == calls]
    return _low_ns(np.array(claimed, dtype=np.float64))


def _plus_ns(own: OwnTime, ns: float) -> OwnTime:
    """The party's time with ``ns`` added to each block."""
    return OwnTime(own.own_ns + ns, own.floor_ns, np.maximum(own.drawn_ns + ns, own.floor_ns))


def _of_more_calls(own: OwnTime, calls: float) -> OwnTime:
    return OwnTime(own.own_ns * calls, own.floor_ns * calls, own.drawn_ns * calls)


def _own_time(gross: Floats, shim: Floats) -> OwnTime:
    """A party's time per block minus the shim's. Blocks of both at the same index are from the same pair."""
    both = np.stack((gross, shim if shim.size else np.zeros_like(gross)))
    block_ns, shim_ns = low_third(both)
    drawn = low_third(both[:, resampled_rounds(gross.size)])
    floor_ns = LEAST_SHARE * float(block_ns)
    return OwnTime(float(block_ns - shim_ns), floor_ns, np.maximum(drawn[0] - drawn[1], floor_ns))


def _ratio(reference: OwnTime, candidate: OwnTime, pairs: int, doubt: float = PLACEMENT_DOUBT) -> Ratio:
    centre = math.log(max(reference.own_ns, reference.floor_ns) / max(candidate.own_ns, candidate.floor_ns))
    low, high = np.percentile(np.log(reference.drawn_ns) - np.log(candidate.drawn_ns), (2.5, 97.5))
    widening = student_t_95(pairs - 1) / Z_95 * math.sqrt(pairs / (pairs - 1))
    below, above = (math.hypot(widening * max(0.0, float(way)), doubt) for way in (centre - low, high - centre))
    return Ratio(math.exp(centre), math.exp(centre - below), math.exp(centre + above))


def _deciding_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The deciding blocks: those with the most calls among the blocks whose calls are made one after another."""
    called = [block for block in blocks if block.way == "called"]
    calls = _most_calls(called)
    return [block for block in called if block.calls == calls]


def _most_calls(blocks: Sequence[Block]) -> int:
    return max((block.calls for block in blocks), default=1)


def _pairs(blocks: Sequence[Block]) -> dict[Party, Floats]:
    """Times in nanoseconds of each party's blocks. Blocks of one round have the same index.

    Rounds that lack a party are left out. Blocks taken without the candidate have an empty array for it.
    """
    rounds: dict[int, dict[Party, int]] = defaultdict(dict)
    for block in blocks:
        rounds[block.round][block.party] = block.elapsed_ns
    parties = {block.party for block in blocks}
    whole = [rounds[number] for number in sorted(rounds) if rounds[number].keys() == parties]
    every: tuple[Party, ...] = ("candidate", "reference", "shim")
    return {
        party: np.array([found[party] for found in whole] if party in parties else [], dtype=np.float64)
        for party in every
    }


def _low_ns(values: Floats) -> float:
    """Mean of the lowest third; 0 without values."""
    return float(low_third(values)) if values.size else 0.0


def _attainment(
    measurement: Measurement, speedup: Speedup | None, candidate_ns: float, reference_ns: float
) -> Attainment | None:
    light = measurement.speed_of_light
    if light is None or speedup is None or not has_limit(light):
        return None
    return attainment(light, candidate_ns, reference_ns)
