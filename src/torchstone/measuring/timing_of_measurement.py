"""Computes the times and the speedup of a measurement, from long or short blocks as it was taken."""

from __future__ import annotations

from torchstone.measuring import long_blocks, short_blocks
from torchstone.measuring.autograd_overhead import withhold_speedup_of_graph
from torchstone.measuring.measured_times import Timing
from torchstone.schema import Measurement


def timing(measurement: Measurement) -> Timing:
    """Compute times per call and a paired speedup from the raw blocks of a measurement."""
    by_short_blocks = measurement.method == short_blocks.METHOD
    found = (short_blocks.timing_of_short_blocks if by_short_blocks else long_blocks.timing_of_long_blocks)(measurement)
    return withhold_speedup_of_graph(found, measurement.differentiating_ns)
