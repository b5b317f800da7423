"""Computes times per call and the speedup from long blocks (many calls timed together), as taken on a GPU.

Separate from the procedure that takes the samples, because it touches no device: any old measurement can be computed
again. Everything here is deterministic and independent of the order in which blocks are stored.
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
    HOPELESS,
    LEAST_SHARE,
    NOISE_BAND,
    Speedup,
    minimum_detectable_effect,
    outcome_of,
)
from torchstone.measuring.speedup_caps import (
    Confirmed,
    as_far_as_alone,
    as_far_as_confirmed,
    no_more_than,
    single_calls_say,
    unless_it_says_nothing,
)
from torchstone.measuring.student_t import student_t_95
from torchstone.measuring.times_per_call import NOTHING, PerCall, paired, per_call, ratio_alone
from torchstone.measuring.trimmed_means import trimmed_count, trimmed_mean
from torchstone.schema import Block, Measurement

MOST_DOUBT = 0.06
"""Largest half width of the judge's own interval at which the workers' times are used."""
CLOCK_SLACK = 0.01
"""Added to the judge's doubt before the workers' claims count as outside it: a relative difference."""
PLACEMENT_DOUBT = 0.012
"""Relative difference of the same kernel in two processes, for as long as both live, because their memory lies at other
addresses. Measured on an H200, see docs/benchmarks.md."""

Floats = NDArray[np.float64]


def timing_of_long_blocks(measurement: Measurement) -> Timing:
    """Compute times per call and a paired speedup from the raw blocks of a measurement."""
    times = per_call(measurement.blocks)
    if times.net.shape[0] == 0:
        raise ValueError("a measurement needs at least one round with both the candidate and the reference")
    speedup, unresolved = speedup_in_long_blocks(measurement.blocks)
    if times.claimed is not None and speedup is not None:
        believed = speedup.judged_low is not None
        times = times._replace(net=times.claimed if believed else _as_the_reference_says(times.net, times.claimed))
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
    """What a speed must pass, one after another. Each gives it as far as it is confirmed."""
    yield lambda found: as_far_as_confirmed(found, measurement.blocks)
    if times.charged is not None:
        most = reference_ns / max(1.0, float(np.median(times.charged)))
        why = f"{most:.2f}x if all that the worker does around a call is the candidate's"
        yield lambda found: no_more_than(found, most, why)
    alone = NOTHING if measurement.never_alone else ratio_alone(measurement.blocks)
    if alone is not None:
        never = f"not confirmed without the candidate: {measurement.never_alone}" if measurement.never_alone else ""
        yield lambda found: as_far_as_alone(found, *alone, never)
    if measurement.preparable_share:
        share = f"{measurement.preparable_share:.0%} of the bytes are the same for all values"
        yield lambda found: no_more_than(found, found.ratio * (1 - measurement.preparable_share), share)
    if measurement.relaying_ns:
        yield lambda found: _as_far_as_laid_out(found, measurement)
    yield unless_it_says_nothing


def _as_far_as_laid_out(speedup: Speedup, measurement: Measurement) -> Confirmed:
    if speedup.ratio <= 1 + NOISE_BAND:
        return speedup, ""
    laid_out = timing_of_long_blocks(_with_results_laid_out(measurement)).speedup
    most = 0.0 if laid_out is None else laid_out.ratio
    return no_more_than(speedup, most, f"{most:.2f}x with the results in the reference's order of memory")


def _with_results_laid_out(measurement: Measurement) -> Measurement:
    """As if the candidate had brought its results to where torch's lie, in every call."""
    taken_ns = measurement.relaying_ns
    blocks = [
        msgspec.structs.replace(
            block,
            elapsed_ns=block.elapsed_ns + round(block.calls * taken_ns),
            claimed_ns=block.claimed_ns + round(block.calls * taken_ns),
        )
        if block.party == "candidate"
        else block
        for block in measurement.blocks
    ]
    return msgspec.structs.replace(measurement, blocks=tuple(blocks), relaying_ns=0.0)


def _as_the_reference_says(net: NDArray[np.float64], claimed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times by the judge's clock, stretched so that the reference's is what its own worker read off the device.

    That worker is ours, and the judge's clock is long by what a block costs beyond its calls, which for few large calls
    is a tenth. What the candidate's says is not believed here: its time keeps the ratio that the judge saw.
    """
    seen, said = float(np.median(net[:, 1])), float(np.median(claimed[:, 1]))
    return net * (said / seen) if seen > 0.0 and said > 0.0 else net


def _call_times_ns(blocks: Sequence[Block]) -> tuple[float | None, float | None]:
    """What calls take when each is started on its own, where there are blocks of such."""
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
    """The paired speedup, or why there is none. What single calls say about it is another question."""
    found, why = _paired_speedup(blocks)
    if found is None or found.judged_low is None:
        return found, why
    return _wider(found, PLACEMENT_DOUBT), why


def is_precise_enough(blocks: Sequence[Block], half_width: float) -> bool:
    """Whether more rounds would change little: the interval is this narrow, or the candidate is hopelessly slow.

    Without the doubt about where memory lies, which more rounds do not lessen.
    """
    speedup, _ = _paired_speedup(blocks)
    if speedup is None:
        return False
    if speedup.high < HOPELESS:
        return True
    sure = speedup.judged_low is not None or not any(block.way == "captured" for block in blocks)
    return sure and math.log(speedup.high / speedup.low) / 2 <= half_width


def needs_confirmation(blocks: Sequence[Block]) -> bool:
    """Whether long blocks say that the candidate is faster, and single calls do not say yet whether that is so."""
    speedup, _ = speedup_in_long_blocks(blocks)
    if speedup is None or speedup.outcome != "faster":
        return False
    own = confirmation.own_times_ns(blocks)
    return single_calls_say(speedup, own, confirmation.charged(own, blocks)) == "open"


def rests_on_the_judges_clock(measurement: Measurement) -> bool:
    """Whether a speed beyond noise comes from the judge's own clock, which the candidate may have had a hand in.

    The reference's own clock on a device is in a worker of ours. Where the judge's clock confirms it, nobody has
    delayed it.
    """
    speedup, _ = speedup_in_long_blocks(measurement.blocks)
    return speedup is not None and speedup.ratio > 1 + NOISE_BAND and speedup.judged_low is None


def _paired_speedup(blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """The same. The interval of claimed times leaves out the placement of memory, which more rounds do not lessen."""
    times = per_call(blocks)
    if times.claimed is None:
        return _speedup(times.gross, times.net)
    unresolved = _why_unresolved(times.gross, times.net)
    if unresolved:
        return None, unresolved
    judged = _speedup_of_means(times)
    if judged is None:
        return None, "the parties' own times drown in the noise of the judge's clock"
    return _as_claimed(judged, times.claimed), ""


def _speedup(gross: Floats, net: Floats) -> tuple[Speedup | None, str]:
    """The paired speedup, or why there is none."""
    unresolved = _why_unresolved(gross, net)
    if unresolved:
        return None, unresolved
    # Single rounds below the floor stay in as extreme ones: leaving them out would favour the party that they hit.
    logs = np.log(np.maximum(net, LEAST_SHARE * np.median(gross, axis=0)))
    return speedup_of_logs(logs[:, 1] - logs[:, 0]), ""


def _why_unresolved(gross: Floats, net: Floats) -> str:
    """Why no ratio means anything; empty where one does."""
    rounds = gross.shape[0]
    if rounds < LEAST_ROUNDS:
        return f"{rounds} paired rounds; {LEAST_ROUNDS} are needed for an interval"
    floor_ns = LEAST_SHARE * np.median(gross, axis=0)
    for party, name in enumerate(("candidate", "reference")):
        if floor_ns[party] <= 0 or np.median(net[:, party]) <= floor_ns[party]:
            return f"the {name}'s own time cannot be told from the cost of calling it"
        if np.mean(net[:, party] <= floor_ns[party]) > WINSORISED_SHARE:
            return f"the {name}'s own time drowns in noise in too many rounds"
    return ""


def _speedup_of_means(times: PerCall) -> Speedup | None:
    """What the judge's own clock says about captured calls: from the middle of each party's blocks.

    Its noise is that of handling a block, which has nothing to do with the round, and now and then something that takes
    as long as the block itself. So pairs within rounds gain nothing, and samples at the ends are left out.
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
    """Degrees of freedom of a sum of estimates that have as many each."""
    squares = np.square(errors)
    total = float(np.sum(squares * squares))
    return freedom * float(np.sum(squares)) ** 2 / total if total else float(freedom)


def _as_claimed(judged: Speedup, claimed: Floats) -> Speedup:
    """The workers' claims, which are far more precise, as far as the judge's own clock confirms them.

    The judge must be sure within a few percent, and the claims must lie within its doubt: a worker that lies gains no
    more than that. Where they do not, what the judge saw counts.
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
    """With a doubt that more rounds do not lessen."""
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
