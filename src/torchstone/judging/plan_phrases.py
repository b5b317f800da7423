"""What each plan puts into a call, in a few words, for people who read why their kernel failed.

Records keep a plan's name (``Replay.planted``); messages say what the inputs were like.
"""

from __future__ import annotations

from torchstone.judging.alike import ALIKE, NEARLY
from torchstone.judging.counting import LOUD, UNUSED
from torchstone.judging.decisions import CARRIED, LARGE
from torchstone.judging.lone import LONE
from torchstone.judging.lots import ONCE
from torchstone.judging.meeting import MEETING
from torchstone.judging.narrow import NARROW
from torchstone.judging.nonfinite_inputs import NON_FINITE
from torchstone.judging.repeated import INFINITE, REPEATED
from torchstone.judging.sided import ABOVE, BELOW
from torchstone.judging.whole import NONE, WHOLE

PHRASES = {
    "numbers": "inputs included 0, small integers, halves and the call's own scalar arguments",
    "hundreds": f"inputs included values up to ±{LARGE[1]:g}",
    "magnitudes": "inputs included very large and very small values",
    "masked": "inputs included masked elements: -inf, or the lowest number of the dtype",
    "missing": "inputs included NaN",
    "padded": "the mask excluded the beginning or the end of rows, as padding does",
    "ends": "inputs included 0 and both ends of their stated range",
    "beyond": "inputs included values outside their stated range",
    "flat": "some rows, samples or channels held one value, others only 0",
    "wide": "inputs included large integers, up to the limits of the dtype",
    "placed": "the element that decides the result was near an end of its tensor",
    UNUSED: "cotangents included 0, in some rows everywhere",
    LOUD: "cotangents were multiplied by a large power of two, as a scaled loss has them",
    ALIKE: "one input was a copy of another, or nearly",
    NEARLY: "one input was a copy of another but for one element, or for non-finite ones",
    NARROW: "all inputs had the same order of magnitude",
    LONE: "all values were 0 but those of one key for each head",
    WHOLE: "boolean inputs were all True, indices counted up",
    NONE: "boolean inputs were all False",
    REPEATED: "inputs held only a few different values, each many times",
    INFINITE: "inputs held only a few different values, inf and -inf among them",
    BELOW: "no input was above 0",
    ABOVE: "no input was below 0",
    MEETING: "some indices occurred more than once",
    "moved": "one input was shifted as a whole by many standard deviations",
    "lowered": "one input was lowered as a whole by many standard deviations",
    "nan": "inputs included NaN",
    "infinities": "inputs included inf and -inf",
    CARRIED: "inputs included inf and -inf",
    NON_FINITE: "non-finite inputs: NaN and infinities; --non-finite ignore leaves them out",
    "negative": "indices included negative ones, which count from the end",
    "marked": "indices included the one that the call ignores or pads with",
}
"""For every plan that :func:`torchstone.judging.decisions.plant` knows."""


def inputs_of(plan: str) -> str:
    """``inputs included values up to ±100``; empty for a call without planted values."""
    return PHRASES[plan.removesuffix(ONCE)] if plan else ""
