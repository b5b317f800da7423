"""Statistics of raw samples: time per call, a paired speedup with its interval, and the shape of a distribution.

Separate from the procedure that takes the samples, because it touches no device: any old measurement can be computed
again. Everything here is deterministic and independent of the order in which blocks are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchstone.measuring import confirmation
from torchstone.measuring.light import Attainment, attainment, has_limit
from torchstone.measuring.per_call import NOTHING, Clocked, PerCall, paired, per_call, ratio_alone
from torchstone.measuring.student import Z_95, student_t_95
from torchstone.measuring.trimmed import trimmed_count, trimmed_mean
from torchstone.schema import Block, Measurement

SpeedOutcome = Literal["faster", "slower", "same", "undecided"]

NOISE_BAND = 0.03
"""Relative differences below this count as noise: alignment, clocks and neighbours cause as much."""
DECISION_WIDTH = 1.5
"""A kernel is faster or slower only if its interval, widened by this factor, is clear of the noise band. A run times
dozens of operators, and at 95 % one or two would be wrong in every run."""
LEAST_SHARE = 0.05
"""Least share of a call that must be the party's own time; below, it cannot be told from the cost of calling."""
HOPELESS = 0.5
"""Ratio below which a candidate is not measured more precisely."""
MOST_DOUBT = 0.06
"""Largest half width of the judge's own interval at which the workers' times are used."""
CLOCK_SLACK = 0.01
PLACEMENT_DOUBT = 0.012
"""Relative difference of the same kernel in two processes, for as long as both live, because their memory lies at other
addresses. Measured on an H200, see docs/benchmarks.md."""
LEAST_ROUNDS_FOR_DEPENDENCE = 6
LEAST_ROUNDS = 3
"""Paired rounds that an interval needs."""

_RESAMPLES = 2000
_WINSORISED_SHARE = 0.2
_SEED = 20240229
_Z_POWER_80 = NormalDist().inv_cdf(0.8)
_Z_90 = NormalDist().inv_cdf(0.9)
_MOST_CORRELATION = 0.9

Floats = NDArray[np.float64]


class Distribution(msgspec.Struct, frozen=True):
    """The shape of a set of samples, in the unit of the samples: the field that holds one names the unit."""

    count: int
    mean: float
    median: float
    std: float
    """Sample standard deviation; zero for a single sample."""
    min: float
    max: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    percentiles: dict[str, float] = {}
    """The ones asked for besides: ``{"99.9": …}``."""


class Speedup(msgspec.Struct, frozen=True):
    """Reference time over candidate time, estimated from pairs that were taken in the same round."""

    ratio: float
    """Above 1: the candidate is faster."""
    low: float
    """Lower end of the 95 % bootstrap interval over rounds."""
    high: float
    """Upper end."""
    outcome: SpeedOutcome
    """`faster` or `slower` only if the interval, widened by DECISION_WIDTH, lies beyond the noise band. `faster` also
    needs confirmation by single calls. `same` only if the interval lies within the band."""
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


class Timing(msgspec.Struct, frozen=True):
    """The result of a measurement. The cost of calling (the shim) is subtracted from both parties."""

    candidate_ns: float
    """Per call, the median over rounds; not positive if the call's own cost hides it."""
    reference_ns: float
    shim_ns: float
    """What was taken off, per call."""
    rounds: int
    """Rounds in which both parties were measured."""
    candidate_rounds_ns: Distribution
    """Per call, one sample a round."""
    reference_rounds_ns: Distribution
    speedup: Speedup | None = None
    """None: the samples do not resolve it, and `unresolved` says why."""
    unresolved: str = ""
    attainment: Attainment | None = None
    """How far the parties are from what the device allows; None unless resolved, or if the limit is not known."""
    clocked: Clocked = "calls"
    """What the times above are of, and the speedup."""
    candidate_call_ns: float | None = None
    """Per call, when each is started on its own: what the host needs or the device, whichever is longer."""
    reference_call_ns: float | None = None

    @property
    def resolved(self) -> bool:
        """Whether the two parties can be told from the cost of calling them, so that a ratio means something."""
        return self.speedup is not None


def distribution(samples: Iterable[float], percentiles: Iterable[float] = ()) -> Distribution:
    """Describe the samples; `percentiles` are added to the usual ones, in percent."""
    values = np.sort(np.fromiter(samples, dtype=np.float64))
    if values.size == 0:
        raise ValueError("a distribution needs at least one sample")
    p25, p50, p75, p90, p95, p99 = (float(value) for value in np.percentile(values, (25, 50, 75, 90, 95, 99)))
    return Distribution(
        count=int(values.size),
        mean=float(np.clip(values.mean(), values[0], values[-1])),
        median=p50,
        std=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        min=float(values[0]),
        max=float(values[-1]),
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        percentiles={f"{percent:g}": float(np.percentile(values, percent)) for percent in percentiles},
    )


def timing(measurement: Measurement) -> Timing:
    """Compute times per call and a paired speedup from the raw blocks of a measurement."""
    times = per_call(measurement.blocks)
    if times.net.shape[0] == 0:
        raise ValueError("a measurement needs at least one round with both the candidate and the reference")
    speedup, unresolved = speedup_in_long_blocks(measurement.blocks)
    if times.claimed is not None and speedup is not None:
        believed = speedup.judged_low is not None
        times = times._replace(net=times.claimed if believed else _as_the_reference_says(times.net, times.claimed))
    candidate_ns, reference_ns = (float(value) for value in np.median(times.net, axis=0))
    if speedup is not None:
        speedup, unresolved = _as_far_as_confirmed(speedup, measurement.blocks)
    if speedup is not None and times.charged is not None:
        speedup = _no_more_than(speedup, reference_ns / max(1.0, float(np.median(times.charged))))
    alone = NOTHING if measurement.never_alone else ratio_alone(measurement.blocks)
    if speedup is not None and alone is not None:
        speedup = _as_far_as_alone(speedup, *alone)
    if speedup is not None and measurement.preparable_share:
        speedup = _no_more_than(speedup, speedup.ratio * (1 - measurement.preparable_share))
    if speedup is not None and measurement.relaying_ns and speedup.ratio > 1 + NOISE_BAND:
        laid_out = timing(_with_results_laid_out(measurement)).speedup
        speedup = _no_more_than(speedup, 0.0 if laid_out is None else laid_out.ratio)
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
    """Where single calls refute what long blocks say of the candidate, its time is what they say."""
    light = measurement.speed_of_light
    if light is None or speedup is None or not has_limit(light):
        return None
    if speedup.one_at_a_time == "refuted":
        candidate_ns = reference_ns / speedup.ratio
    return attainment(light, candidate_ns, reference_ns)


def _speedup(gross: Floats, net: Floats) -> tuple[Speedup | None, str]:
    """The paired speedup, or why there is none."""
    unresolved = _why_unresolved(gross, net)
    if unresolved:
        return None, unresolved
    # Single rounds below the floor stay in as extreme ones: leaving them out would favour the party that they hit.
    logs = np.log(np.maximum(net, LEAST_SHARE * np.median(gross, axis=0)))
    return _speedup_of_logs(logs[:, 1] - logs[:, 0]), ""


def _why_unresolved(gross: Floats, net: Floats) -> str:
    """Why no ratio means anything; empty where one does."""
    rounds = gross.shape[0]
    if rounds < LEAST_ROUNDS:
        return f"{rounds} paired rounds; {LEAST_ROUNDS} are needed for an interval"
    floor_ns = LEAST_SHARE * np.median(gross, axis=0)
    for party, name in enumerate(("candidate", "reference")):
        if floor_ns[party] <= 0 or np.median(net[:, party]) <= floor_ns[party]:
            return f"the {name}'s own time cannot be told from the cost of calling it"
        if np.mean(net[:, party] <= floor_ns[party]) > _WINSORISED_SHARE:
            return f"the {name}'s own time drowns in noise in too many rounds"
    return ""


def _dependence(logs: Floats) -> float:
    """By how much an interval must be wider because rounds resemble the ones before them.

    A drift that lasts several rounds makes them one observation rather than several. From the correlation of each round
    with the next, as far as it is larger than chance makes it: sqrt((1 + r) / (1 - r)).
    """
    count = logs.size
    around = logs - logs.mean()
    total = float(around @ around)
    if count < LEAST_ROUNDS_FOR_DEPENDENCE or total <= 0:
        return 1.0
    correlation = float(around[1:] @ around[:-1]) / total
    if correlation <= _Z_90 / math.sqrt(count):
        return 1.0
    correlation = min(correlation, _MOST_CORRELATION)
    return math.sqrt((1 + correlation) / (1 - correlation))


def speedup_in_long_blocks(blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """The paired speedup, or why there is none. What single calls say about it is another question."""
    found, why = _paired_speedup(blocks)
    if found is None or found.judged_low is None:
        return found, why
    return _wider(found, PLACEMENT_DOUBT), why


def _paired_speedup(blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """The same, of claims with the doubt that more rounds lessen alone."""
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
    dependence = _dependence(np.log(np.maximum(times.net[:, 1], 1.0)) - np.log(np.maximum(times.net[:, 0], 1.0)))
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
    """The workers' claims, which are far more precise, as far as the judge's own clock bears them out.

    The judge must be sure within a few percent, and the claims must lie within its doubt: a worker that lies gains no
    more than that. Where they do not, what the judge saw counts.
    """
    doubt = math.log(judged.high / judged.low) / 2
    if doubt > MOST_DOUBT or np.any(claimed <= 0):
        return judged
    logs = np.log(claimed)
    found = _speedup_of_logs(logs[:, 1] - logs[:, 0])
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
    return _single_calls_say(speedup, own, confirmation.charged(own, blocks)) == "open"


def rests_on_the_judges_clock(measurement: Measurement) -> bool:
    """Whether a speed beyond noise comes from the judge's own clock, which the candidate may have had a hand in.

    The reference's own clock on a device is in a worker of ours: where the judge bears it out nobody has delayed it.
    """
    speedup, _ = speedup_in_long_blocks(measurement.blocks)
    return speedup is not None and speedup.ratio > 1 + NOISE_BAND and speedup.judged_low is None


def _single_calls_say(speedup: Speedup, own: Floats, charged: Floats) -> confirmation.Confirmation:
    return confirmation.finding(own, charged, speedup.ratio, 1 + NOISE_BAND)


def _as_far_as_confirmed(speedup: Speedup, blocks: Sequence[Block]) -> tuple[Speedup | None, str]:
    """Reduce a speedup to what single calls confirm. Only speed is doubted: no kernel gains by looking slow."""
    if speedup.ratio <= 1:
        return speedup, ""
    own = confirmation.own_times_ns(blocks)
    beside = [block for block in blocks if block.way not in ("alone", "beforehand")]
    found = _single_calls_say(speedup, own, confirmation.charged(own, beside))
    charged = confirmation.charged(
        own, blocks
    )  # what the reference took without the candidate counts, but says nothing
    seen = confirmation.ratio_interval(confirmation.as_if_warm(own, blocks)) if found == "refuted" else None
    if seen is not None:
        ratio, low, high = seen
        effect = minimum_detectable_effect(math.log(high / low) / 2)
        shown = Speedup(ratio, low, high, outcome_of(low, high), found, minimum_detectable_effect=effect)
        return _no_more_than(shown, confirmation.supported_ratio(charged) / confirmation.ALLOWANCE), ""
    if found == "refuted" or (speedup.outcome == "faster" and found != "confirmed"):
        return None, f"{speedup.ratio:.2f}x in long blocks, which single calls do not confirm"
    return _no_more_than_supported(msgspec.structs.replace(speedup, one_at_a_time=found), charged), ""


def _no_more_than_supported(speedup: Speedup, own: Floats) -> Speedup:
    """A speed that single calls neither refute nor show in full counts as far as they show it.

    That holds for every ratio beyond noise, whatever it is called: who keeps his speed undecided, or single calls
    noisy, must not fare better than who is refuted. What is called faster has been confirmed, and counts as far as
    single calls make it likely; of the others only what they leave no doubt about.
    """
    enough = own.shape[0] >= confirmation.LEAST_ROUNDS
    faster = speedup.outcome == "faster"
    shown = (confirmation.supported_ratio if faster else confirmation.certain_ratio)(own) if enough else 0.0
    ratio = _held(speedup.ratio, shown)
    if speedup.ratio <= ratio:
        return speedup
    high = min(speedup.high, ratio) if faster else speedup.high
    return msgspec.structs.replace(speedup, ratio=ratio, low=min(speedup.low, ratio), high=high)


def _held(ratio: float, most: float) -> float:
    """A ratio as far as it counts: within noise as it is, beyond it no further than ``most``, or as if there were none.

    Not as fast as noise can make a kernel look: who is found out must not be counted among those that are faster.
    """
    return ratio if ratio <= 1 + NOISE_BAND else min(ratio, max(most, 1.0))


def _as_far_as_alone(speedup: Speedup, ratio: float, surely: float) -> Speedup:
    """Reduce a speedup to what the reference confirms without the candidate; if undecided, to the lower end of that."""
    least = 1 + NOISE_BAND
    if speedup.ratio <= max(least, ratio * least):
        return speedup
    held = _no_more_than(speedup, ratio * least)
    low = min(held.low, max(1.0, surely * least))
    held = msgspec.structs.replace(held, low=low, outcome=outcome_of(low, held.high))
    return held if held.outcome == "faster" else _no_more_than(held, surely)


def _no_more_than(speedup: Speedup, most: float) -> Speedup:
    """A speed beyond noise counts no further than this; nobody is slower for it."""
    most = _held(speedup.ratio, most)
    if speedup.ratio <= most:
        return speedup
    low, high = min(speedup.low, most), min(speedup.high, most * speedup.high / speedup.ratio)
    return msgspec.structs.replace(speedup, ratio=most, low=low, high=high, outcome=outcome_of(low, high))


def speedup_of_pairs(candidate: Sequence[float], reference: Sequence[float]) -> Speedup | None:
    """The speedup of times that were taken in pairs, one after the other; None: too few pairs, or no time at all."""
    if len(candidate) < LEAST_ROUNDS or min(*candidate, *reference) <= 0:
        return None
    return _speedup_of_logs(np.log(np.asarray(reference)) - np.log(np.asarray(candidate)))


def _speedup_of_logs(logs: Floats) -> Speedup:
    ordered = np.sort(logs)
    centre = float(_winsorised_means(ordered[np.newaxis, :])[0])
    low, high = _interval(ordered, centre, _dependence(logs))
    return Speedup(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        outcome=outcome_of(math.exp(low), math.exp(high)),
        minimum_detectable_effect=minimum_detectable_effect((high - low) / 2),
    )


def _winsorised_means(ordered_rows: Floats) -> Floats:
    """Mean of every row after pulling its outer fifths in to the nearest value that stays."""
    count = ordered_rows.shape[1]
    cut = int(_WINSORISED_SHARE * count)
    kept = ordered_rows[:, cut : count - cut]
    return np.asarray((kept.sum(axis=1) + cut * (kept[:, 0] + kept[:, -1])) / count, dtype=np.float64)


def _interval(ordered: Floats, centre: float, dependence: float) -> tuple[float, float]:
    """Bootstrap percentiles, widened by dependence and by what Student's t adds over the normal for this few rounds."""
    count = ordered.size
    estimates = _winsorised_means(np.sort(ordered[_resamples(count)], axis=1))
    low, high = (float(value) for value in np.percentile(estimates, (2.5, 97.5)))
    widening = dependence * student_t_95(count - 1) / Z_95 * math.sqrt(count / (count - 1))
    return centre - widening * max(centre - low, 0.0), centre + widening * max(high - centre, 0.0)


@lru_cache(maxsize=16)
def _resamples(count: int) -> NDArray[np.intp]:
    """Indices of the bootstrap samples, each with its mirror image: swapping the parties then inverts the interval."""
    drawn = np.random.default_rng(_SEED).integers(0, count, size=(_RESAMPLES // 2, count))
    return np.concatenate((drawn, count - 1 - drawn)).astype(np.intp)


def outcome_of(low: float, high: float) -> SpeedOutcome:
    """What a 95 % interval of a speedup allows to say."""
    fastest = 1 + NOISE_BAND
    reach = (high / low) ** ((DECISION_WIDTH - 1) / 2)
    if low / reach > fastest:
        return "faster"
    if high * reach < 1 / fastest:
        return "slower"
    if 1 / fastest <= low and high <= fastest:
        return "same"
    return "undecided"


def minimum_detectable_effect(half_width: float) -> float:
    return math.expm1(math.log1p(NOISE_BAND) + half_width * (1 + _Z_POWER_80 / Z_95))
