"""Withholds a gradient's speedup if autograd's own overhead in the reference's time is more than noise.

A kernel's gradients are computed in its own process, which it can change. A kernel that computes results and gradients
directly needs no graph of autograd, but the reference's time includes one. If the graph takes more than noise, there is
no speedup.
"""

from __future__ import annotations

import msgspec

from torchstone.measuring.measured_times import Timing
from torchstone.measuring.speedup import NOISE_BAND


def withhold_speedup_of_graph(found: Timing, differentiating_ns: float | None) -> Timing:
    """The timing, without its speedup if the graph explains it. ``differentiating_ns``: autograd's time per call."""
    if found.speedup is None or found.clocked != "calls" or differentiating_ns is None:
        return found
    if differentiating_ns <= NOISE_BAND * found.reference_ns:
        return found
    times = f"{differentiating_ns / 1e3:.0f} µs of the reference's {found.reference_ns / 1e3:,.0f} µs"
    why = f"autograd's graph takes {times}, which a kernel can save without computing faster"
    return msgspec.structs.replace(found, speedup=None, unresolved=why, attainment=None)
