"""Caps a speedup from long blocks at what single calls, and the reference without the candidate, confirm.

A smaller ratio found there caps the speedup, and the row says why. If no speedup at all is found there, the case is
unresolved: no ratio is replaced by 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchstone.measuring import confirmation
from torchstone.measuring.speedup import (
    NOISE_BAND,
    Speedup,
    has_useless_interval,
    minimum_detectable_effect,
    outcome_of,
)
from torchstone.schema import Block

Floats = NDArray[np.float64]
Confirmed = tuple[Speedup | None, str]
"""The speedup reduced to what is confirmed, and an empty text; or None and the reason."""


def single_call_confirmation(speedup: Speedup, own: Floats, charged: Floats) -> confirmation.Confirmation:
    """Whether single calls confirm this speedup: `confirmed`, `refuted` or `open`."""
    return confirmation.confirmation_of(own, charged, speedup.ratio, 1 + NOISE_BAND)


def capped_by_single_calls(speedup: Speedup, blocks: Sequence[Block]) -> Confirmed:
    """Reduce a speedup to what single calls confirm. Ratios up to 1 are kept: no kernel gains by looking slow."""
    if speedup.ratio <= 1:
        return speedup, ""
    own = confirmation.own_times_ns(blocks)
    beside = [block for block in blocks if block.way not in ("alone", "beforehand")]
    found = single_call_confirmation(speedup, own, confirmation.charged(own, beside))
    # What the reference took without the candidate counts, but says nothing.
    charged = confirmation.charged(own, blocks)
    seen = confirmation.ratio_interval(confirmation.as_if_warm(own, blocks)) if found == "refuted" else None
    if seen is not None:
        return _as_refuted(speedup, seen, confirmation.supported_ratio(charged) / confirmation.ALLOWANCE)
    if found == "refuted" or (speedup.outcome == "faster" and found != "confirmed"):
        return None, f"{speedup.ratio:.2f}x in long blocks, which single calls do not confirm"
    return _capped_at_supported_ratio(msgspec.structs.replace(speedup, one_at_a_time=found), charged)


def _as_refuted(speedup: Speedup, seen: tuple[float, float, float], supported: float) -> Confirmed:
    """The speedup of single calls instead: ``seen`` (ratio, low, high), capped at ``supported``."""
    ratio, low, high = seen
    effect = minimum_detectable_effect(math.log(high / low) / 2)
    why = f"{speedup.ratio:.2f}x in long blocks; single calls show {ratio:.2f}x"
    shown = Speedup(ratio, low, high, outcome_of(low, high), "refuted", minimum_detectable_effect=effect, capped=why)
    return capped_at(shown, supported, "single calls do not support more")


def _capped_at_supported_ratio(speedup: Speedup, own: Floats) -> Confirmed:
    """Cap a speedup that single calls do not refute at what they show.

    This applies to every ratio beyond noise, whatever its outcome. Otherwise a kernel that keeps its speedup undecided,
    or its single calls noisy, would get more than one whose speedup is refuted. The cap of an outcome `faster`, which
    single calls have confirmed, is the ratio of single calls. For other outcomes it is the lower end of its interval.
    """
    enough = own.shape[0] >= confirmation.LEAST_ROUNDS
    faster = speedup.outcome == "faster"
    most = (confirmation.supported_ratio if faster else confirmation.certain_ratio)(own) if enough else 0.0
    return capped_at(speedup, most, "single calls do not confirm more" if most > 1 else "single calls show no speedup")


def capped_by_reference_alone(speedup: Speedup, ratio: float, surely: float, why: str = "") -> Confirmed:
    """Reduce a speedup to ``ratio``, from the reference's time without the candidate; if undecided, to ``surely``.

    ``surely``: the lower end of ``ratio``. ``why``: why the reference could not be timed without the candidate.
    """
    least = 1 + NOISE_BAND
    if speedup.ratio <= max(least, ratio * least):
        return speedup, ""
    why = why or f"without the candidate the reference took {max(0.0, ratio):.2f} times the candidate's time"
    held, unresolved = capped_at(speedup, ratio * least, why)
    if held is None:
        return None, unresolved
    low = min(held.low, max(1.0, surely * least))
    held = msgspec.structs.replace(held, low=low, outcome=outcome_of(low, held.high))
    return (held, "") if held.outcome == "faster" else capped_at(held, surely, why)


def unless_interval_too_wide(speedup: Speedup) -> Confirmed:
    """The speedup; None and the reason if its interval is too wide to say anything."""
    if has_useless_interval(speedup):
        return None, f"its interval, {speedup.low:.2f} to {speedup.high:.2f}, is too wide"
    return speedup, ""


def capped_at(speedup: Speedup, most: float, why: str) -> Confirmed:
    """Cap a speedup beyond noise at ``most``. ``why`` is added to its reasons if that is less by more than noise.

    If ``most`` is no speedup at all, the case is unresolved: blocks show a speedup, and another measurement shows none.
    """
    if speedup.ratio <= max(1 + NOISE_BAND, most):
        return speedup, ""
    if most <= 1:
        return None, f"{speedup.ratio:.2f}x in long blocks; {why}"
    low, high = most * speedup.low / speedup.ratio, most * speedup.high / speedup.ratio
    if most < speedup.ratio / (1 + NOISE_BAND):
        capped = f"{speedup.capped or f'{speedup.ratio:.2f}x in long blocks'}; {why}"
        speedup = msgspec.structs.replace(speedup, capped=capped)
    effect = minimum_detectable_effect(math.log(high / low) / 2)
    outcome = outcome_of(low, high)
    return msgspec.structs.replace(
        speedup, ratio=most, low=low, high=high, outcome=outcome, minimum_detectable_effect=effect
    ), ""
