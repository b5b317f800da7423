"""Computes times per call and the speedup from long blocks (many calls timed together), as taken on a GPU.

This module uses no device, so that the statistics of any stored measurement can be computed again. Everything here is
deterministic and independent of the order in which blocks are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchstone.measuring import confirmation
from torchstone.measuring.measured_times import Timing, distribution
from torchstone.measuring.paired_speedup import LEAST_ROUNDS, WINSORISED_SHARE, dependence_factor, speedup_of_logs
from torchstone.measuring.speed_of_light import Attainment, attainment, has_limit
from torchstone.measuring.speedup import (
    DECISION_WIDTH,
    LEAST_SHARE,
    MUCH_SLOWER_RATIO,
    NOISE_BAND,
    Speedup,
    minimum_detectable_effect,
    outcome_of,
)
from torchstone.measuring.speedup_caps import (
    Confirmed,
    capped_at,
    capped_by_reference_alone,
    capped_by_single_calls,
    single_call_confirmation,
    unless_interval_too_wide,
)
from torchstone.measuring.student_t import student_t_95
from torchstone.measuring.times_per_call import CONFIRMS_NO_SPEEDUP, PerCall, paired, per_call, ratio_alone
from torchstone.measuring.trimmed_means import trimmed_count, trimmed_mean
from torchstone.schema import Block, Measurement

MOST_DOUBT = 0.06
"""Largest relative half width of the interval by the judge's clock at which the workers' times are used."""
CLOCK_SLACK = 0.01
"""Relative difference by which the workers' ratio may lie outside the widened interval by the judge's clock."""
PLACEMENT_DOUBT = 0.012
"""Relative difference of the times of the same kernel in two processes. It lasts as long as both live, because their
memory lies at other addresses. Measured on an H200, see docs/benchmarks.md."""

Floats = NDArray[np.float64]


def timing_of_long_blocks(measurement: Measurement) -> Timing:
    """Compute times per call and a paired speedup from the raw blocks of a measurement."""
    times = per_call(measurement.blocks)
    if times.net.shape[0] == 0:
        raise ValueError("a measurement needs at least one round with both the candidate and the reference")
    speedup, unresolved = speedup_in_long_blocks(measurement.blocks)
    if times.claimed is not None and speedup is not None:
        confirmed = speedup.judged_low is not None
        times = times._replace(net=times.claimed if confirmed else _scaled_to_device_times(times.net, times.claimed))
    candidate_ns, reference_ns = (float(value) for value in np.median(times.net, axis=0))
    in_blocks = speedup
    for cap in _caps(measurement, times, reference_ns):
        if speedup is not None:
            speedup, unresolved = cap(speedup)
    if speedup is not None and in_blocks is not None and speedup.ratio != in_blocks.ratio:
        candidate_ns = reference_ns / speedup.ratio
    candidate_call_ns, reference_call_ns = _call_times_ns(measurement.blocks)
    return Timing(
        candidate_ns=candidate_ns,
        reference_ns=reference_ns,
        shim_ns=times.shim_ns,
        rounds=int(times.net.shape[0]),
        candidate_rounds_ns=distribution(times.net[:, 0]),
        reference_rounds_ns=distribution(times.net[:, 1]),
        speedup=speedup,
        unresolved=unresolved,
        attainment=_attainment(measurement, speedup, candidate_ns, reference_ns),
        clocked=times.clocked,
        candidate_call_ns=candidate_call_ns,
        reference_call_ns=reference_call_ns,
    )


def _caps(measurement: Measurement, times: PerCall, reference_ns: float) -> Iterator[Callable[[Speedup], Confirmed]]:
    """The checks that a speedup must pass, in order. Each returns the speedup reduced to what it confirms."""
    yield lambda found: capped_by_single_calls(found, measurement.blocks)
    if times.charged is not None:
        most = reference_ns / max(1.0, float(np.median(times.charged)))
        why = f"{most:.2f}x if the worker's handling of a call is charged to the candidate"
        yield lambda found: capped_at(found, most, why)
    alone = CONFIRMS_NO_SPEEDUP if measurement.never_alone else ratio_alone(measurement.blocks)
    if alone is not None:
        never = f"not confirmed without the candidate: {measurement.never_alone}" if measurement.never_alone else ""
        yield lambda found: capped_by_reference_alone(found, *alone, never)
    if measurement.preparable_share:
        share = f"{measurement.preparable_share:.0%} of the bytes of the results are the same for all inputs"
        yield lambda found: capped_at(found, found.ratio * (1 - measurement.preparable_share), share)
    if measurement.relaying_ns:
        yield lambda found: _capped_by_copying(found, measurement)
    yield unless_interval_too_wide


def _capped_by_copying(speedup: Speedup, measurement: Measurement) -> Confirmed:
    """Cap the speedup at that with the time to copy results to the reference's strides in the candidate's time."""
    if speedup.ratio <= 1 + NOISE_BAND:
        return speedup, ""
    laid_out = timing_of_long_blocks(_with_copied_results(measurement)).speedup
    most = 0.0 if laid_out is None else laid_out.ratio
    return capped_at(speedup, most, f"{most:.2f}x with the time to copy the results to the reference's strides")


def _with_copied_results(measurement: Measurement) -> Measurement:
    """The measurement, with the time to copy results to the reference's strides added to each call of the candidate."""
    copy_ns = measurement.relaying_ns
    blocks = [
        msgspec.structs.replace(
            block,
            elapsed_ns=block.elapsed_ns + round(block.calls * copy_ns),
            claimed_ns=block.claimed_ns + round(block.calls * copy_ns),
        )
        if block.party == "candidate"
        else block
        for block in measurement.blocks
    ]
    return msgspec.structs.replace(measurement, blocks=tuple(blocks), relaying_ns=0.0)


def _scaled_to_device_times(net: NDArray[np.float64], claimed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times by the judge's clock, scaled so that the reference's time is the device time that its own worker reports.

    The reference's worker is trusted. The judge's clock includes what a block costs besides its calls, which is a tenth
    for few large calls. The candidate's worker is not trusted, so the ratio by the judge's clock is kept.
    """
    seen, reported = float(np.median(net[:, 1])), float(np.median(claimed[:, 1]))
    return net * (reported / seen) if seen > 0.0 and reported > 0.0 else net


def _call_times_ns(blocks: Sequence[Block]) -> tuple[float | None, float | None]:
    """Times per call of candidate and reference in blocks of calls made one by one; None if there are none."""
    net = paired([block for block in blocks if block.way == "called"]).net
    if not net.shape[0]:
        return None, None
    candidate_ns, reference_ns = (float(value) for value in np.median(net, axis=0))
    return candidate_ns, reference_ns


def _attainment(
    measurement: Measurement, speedup: Speedup | None, candidate_ns: float, reference_ns: float
) -> Attainment | None:
    light = measurement.speed_of_light
    if light is None or speedup is None or not has_limit(light):
        return None
    return attainment(light, candidate_ns, reference_ns)


def speedup_in_long_blocks(blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """The paired speedup of long blocks, or None and why there is none. Single calls are not considered here."""
    found, why = _paired_speedup(blocks)
    if found is None or found.judged_low is None:
        return found, why
    return _wider(found, PLACEMENT_DOUBT), why


def is_precise_enough(blocks: Sequence[Block], half_width: float) -> bool:
    """Whether more rounds would change little: the interval is this narrow, or the candidate is much slower.

    The interval leaves out the placement of memory, which more rounds do not narrow.
    """
    speedup, _ = _paired_speedup(blocks)
    if speedup is None:
        return False
    if speedup.high < MUCH_SLOWER_RATIO:
        return True
    sure = speedup.judged_low is not None or not any(block.way == "captured" for block in blocks)
    return sure and math.log(speedup.high / speedup.low) / 2 <= half_width


def needs_confirmation(blocks: Sequence[Block]) -> bool:
    """Whether long blocks show a faster candidate, which single calls neither confirm nor refute yet."""
    speedup, _ = speedup_in_long_blocks(blocks)
    if speedup is None or speedup.outcome != "faster":
        return False
    own = confirmation.own_times_ns(blocks)
    return single_call_confirmation(speedup, own, confirmation.charged(own, blocks)) == "open"


def rests_on_the_judges_clock(measurement: Measurement) -> bool:
    """Whether only the judge's clock shows a speedup beyond noise, so that a delayed reference could be its cause.

    If the judge's clock confirms the workers' device times, the reference was not delayed: its worker is trusted.
    """
    speedup, _ = speedup_in_long_blocks(measurement.blocks)
    return speedup is not None and speedup.ratio > 1 + NOISE_BAND and speedup.judged_low is None


def _paired_speedup(blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """The paired speedup, or why there is none. Unlike :func:`speedup_in_long_blocks` it leaves out PLACEMENT_DOUBT."""
    times = per_call(blocks)
    if times.claimed is None:
        return _speedup(times.gross, times.net)
    unresolved = _why_unresolved(times.gross, times.net)
    if unresolved:
        return None, unresolved
    judged = _speedup_of_means(times)
    if judged is None:
        return None, "the times of candidate and reference are below the noise of the judge's clock"
    return _as_claimed(judged, times.claimed), ""


def _speedup(gross: Floats, net: Floats) -> tuple[Speedup | None, str]:
    """The speedup from the ratios within rounds, or None and why there is none."""
    unresolved = _why_unresolved(gross, net)
    if unresolved:
        return None, unresolved
    # Rounds below the floor are raised to it, not left out: leaving them out would favour the party that has them.
    logs = np.log(np.maximum(net, LEAST_SHARE * np.median(gross, axis=0)))
    return speedup_of_logs(logs[:, 1] - logs[:, 0]), ""


def _why_unresolved(gross: Floats, net: Floats) -> str:
    """Why the times give no usable ratio; empty if they do."""
    rounds = gross.shape[0]
    if rounds < LEAST_ROUNDS:
        return f"{rounds} paired rounds; {LEAST_ROUNDS} are needed for an interval"
    floor_ns = LEAST_SHARE * np.median(gross, axis=0)
    for party, name in enumerate(("candidate", "reference")):
        if floor_ns[party] <= 0 or np.median(net[:, party]) <= floor_ns[party]:
            return f"the {name}'s own time cannot be separated from the overhead of calling it"
        if np.mean(net[:, party] <= floor_ns[party]) > WINSORISED_SHARE:
            return f"the {name}'s own time is below the noise in too many rounds"
    return ""


def _speedup_of_means(times: PerCall) -> Speedup | None:
    """The speedup of captured calls by the judge's clock, from a trimmed mean of each party's blocks.

    The clock's noise comes from handling each block and does not depend on the round, so pairing within rounds would
    gain nothing. Some blocks are delayed by as much as they last, so the lowest and highest samples are left out.
    """
    (candidate, of_candidate), (reference, of_reference) = (trimmed_mean(times.gross[:, party]) for party in (0, 1))
    shim, of_shim = trimmed_mean(times.shims)
    own, other = candidate - shim, reference - shim
    if min(own, other) <= 0:
        return None
    errors = (of_candidate / own, of_reference / other, of_shim * (1 / own - 1 / other))
    kept = times.gross.shape[0] - 2 * trimmed_count(times.gross.shape[0])
    freedom = max(1, round(_welch(kept - 1, errors)))
    dependence = dependence_factor(np.log(np.maximum(times.net[:, 1], 1.0)) - np.log(np.maximum(times.net[:, 0], 1.0)))
    width = dependence * student_t_95(freedom) * math.hypot(*errors)
    centre = math.log(other / own)
    low, high = math.exp(centre - width), math.exp(centre + width)
    effect = minimum_detectable_effect(width)
    return Speedup(math.exp(centre), low, high, outcome_of(low, high), minimum_detectable_effect=effect)


def _welch(freedom: int, errors: Sequence[float]) -> float:
    """Degrees of freedom of a sum of estimates with these errors, each with ``freedom`` of its own (Welch)."""
    squares = np.square(errors)
    total = float(np.sum(squares * squares))
    return freedom * float(np.sum(squares)) ** 2 / total if total else float(freedom)


def _as_claimed(judged: Speedup, claimed: Floats) -> Speedup:
    """The speedup of the workers' times, which are more precise, if the judge's clock confirms it; else ``judged``.

    The interval by the judge's clock must be narrow (MOST_DOUBT). Widened by DECISION_WIDTH and CLOCK_SLACK, it must
    contain the workers' ratio. A worker that reports wrong times gains no more than this interval allows.
    """
    doubt = math.log(judged.high / judged.low) / 2
    if doubt > MOST_DOUBT or np.any(claimed <= 0):
        return judged
    logs = np.log(claimed)
    found = speedup_of_logs(logs[:, 1] - logs[:, 0])
    if abs(math.log(found.ratio / judged.ratio)) > DECISION_WIDTH * doubt + CLOCK_SLACK:
        return judged
    return msgspec.structs.replace(found, judged_low=judged.low, judged_high=judged.high)


def _wider(speedup: Speedup, doubt: float) -> Speedup:
    """The speedup, its interval widened by a relative difference that more rounds do not reduce."""
    below, above = (
        math.hypot(math.log(speedup.ratio / speedup.low), doubt),
        math.hypot(math.log(speedup.high / speedup.ratio), doubt),
    )
    low, high = speedup.ratio * math.exp(-below), speedup.ratio * math.exp(above)
    return msgspec.structs.replace(
        speedup,
        low=low,
        high=high,
        outcome=outcome_of(low, high),
        minimum_detectable_effect=minimum_detectable_effect((below + above) / 2),
    )
