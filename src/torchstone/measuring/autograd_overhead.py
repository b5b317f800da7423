"""Computes a measurement's times; withholds a gradient's speedup if autograd's own overhead is more than noise.

A kernel's gradients are computed in its own process, which it can change. A kernel that computes results and gradients
directly needs no graph of autograd, but the reference's time includes one. If the graph takes more than noise, there is
no speedup.
"""

from __future__ import annotations

import msgspec

from torchstone.measuring import long_blocks, short_blocks
from torchstone.measuring.measured_times import Timing
from torchstone.measuring.speedup import NOISE_BAND
from torchstone.schema import Measurement


def timing(measurement: Measurement) -> Timing:
    """Compute times per call and a paired speedup from the raw blocks of a measurement."""
    by_short_blocks = measurement.method == short_blocks.METHOD
    found = (short_blocks.timing_of_short_blocks if by_short_blocks else long_blocks.timing_of_long_blocks)(measurement)
    differentiating_ns = measurement.differentiating_ns
    if found.speedup is None or found.clocked != "calls" or differentiating_ns is None:
        return found
    if differentiating_ns <= NOISE_BAND * found.reference_ns:
        return found
    times = f"{found.reference_ns / 1e3:,.0f} µs the graph of autograd takes {differentiating_ns / 1e3:.0f} µs"
    why = f"of the reference's {times}, which a kernel can save without computing any faster"
    return msgspec.structs.replace(found, speedup=None, unresolved=why, attainment=None)
