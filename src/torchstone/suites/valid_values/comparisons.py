"""Table of values for comparisons, clamps, hard activations and searches: on both sides of each bound."""

from __future__ import annotations

import math

from torchstone.schema import Fill, Integers, Normal, SortedIntegers, Uniform
from torchstone.suites.recorded_call_text import TracedTensor
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import RuleTable

RULES = RuleTable()


_LARGEST_FLOAT16 = 65504.0
_EXACT_INTEGERS_BELOW = {"int64": 1 << 40, "int32": 1 << 30, "float64": 1 << 40, "float32": 1 << 23}
"""Integers below this limit are exact in the dtype, with a margin. Other dtypes: 1024."""


@RULES.of("eq ne lt le gt ge", "self other")
def _compare(call: NamedCall) -> Fills:
    """Compared with a number: values below it, above it, and equal to it if it is an integer.

    Two tensors of equal shape and dtype are made equal in places when their values are drawn. Others get small
    integers, of which some are equal.
    """
    one, other = call["self"], call["other"]
    if isinstance(one, TracedTensor) and isinstance(other, TracedTensor):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        return {} if alike else {"self": Integers(-3, 4), "other": Integers(-3, 4)}
    if isinstance(other, bool) or not isinstance(other, int | float) or not math.isfinite(other):
        return {}
    if float(other).is_integer() and abs(other) < _EXACT_INTEGERS_BELOW.get(getattr(one, "dtype", ""), 1024):
        return {"self": Integers(int(other) - 3, int(other) + 4)}
    return {"self": Normal(float(other), max(1.0, abs(float(other))))}


@RULES.of("clamp clip", "self min max")
@RULES.of("hardtanh", "self min max")
@RULES.of("hardtanh_backward", "grad_output self min max")
def _clamp(call: NamedCall) -> Fills:
    """Values on both sides of both bounds."""
    low, high = call.number("min", -1.0), call.number("max", 1.0)
    if low >= high:
        return {}
    if max(abs(low), abs(high)) > 1024:  # models clamp to such bounds to avoid infinity
        reach = min(1.25 * max(abs(low), abs(high)), _LARGEST_FLOAT16)
        return {} if call.is_whole("self") or math.isinf(low - high) else {"self": Uniform(-reach, reach)}
    width = math.ceil(high - low)
    if call.is_whole("self"):
        return {"self": Integers(int(low) - width, int(high) + width + 1)}
    return {"self": Normal((low + high) / 2, high - low)}


RULES.always("hardsigmoid hardswish relu6", "self", self=Normal(0.0, 3.0))
RULES.always("hardsigmoid_backward hardswish_backward", "grad_output self", self=Normal(0.0, 3.0))


@RULES.of("bucketize", "self boundaries")
def _bucketize(call: NamedCall) -> Fills:
    return _sorted_and_sought(call, "boundaries", "self")


@RULES.of("searchsorted", "sorted_sequence self")
def _searchsorted(call: NamedCall) -> Fills:
    return _sorted_and_sought(call, "sorted_sequence", "self")


def _sorted_and_sought(call: NamedCall, ordered: str, sought: str) -> Fills:
    """The sought values lie between, below and above the sorted ones."""
    reach = 4 * max(1, call.size(ordered, -1))
    among: Fill = Integers(-2, reach + 2) if call.is_whole(sought) else Uniform(-2.0, reach + 2.0)
    return {ordered: SortedIntegers(0, reach), sought: among}
