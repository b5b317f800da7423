"""Speeds of gradients, and what autograd itself costs."""

from __future__ import annotations

import torch

from torchstone.gradient_operators import differentiating_ns
from torchstone.measuring import timing
from torchstone.schema import Block, Measurement, Way

PARTIES = {"candidate": 1_000_000, "reference": 2_000_000, "shim": 0}


def measured(own_ns: float | None, way: Way = "called") -> Measurement:
    blocks = [
        Block(round_, party, calls, calls * per_call_ns, calls * per_call_ns, way)  # type: ignore[arg-type]
        for round_ in range(5)
        for party, per_call_ns in PARTIES.items()
        for calls in (1, 20)
    ]
    return Measurement("blocks-less-shim", tuple(blocks), 0, 1, 1, 2, 8, differentiating_ns=own_ns)


def test_a_gradient_has_no_speed_where_the_graph_is_more_than_noise() -> None:
    found = timing(measured(70_000.0))
    assert found.speedup is None
    assert found.attainment is None
    assert "autograd's graph takes 70 µs of the reference's 2,000 µs" in found.unresolved
    assert found.reference_ns == 2_000_000


def test_what_is_noise_or_not_on_the_clock_does_not_matter() -> None:
    for measurement in (measured(50_000.0), measured(None), measured(1e9, "captured")):
        found = timing(measurement)
        assert found.speedup is not None
        assert found.unresolved == ""


def test_differentiating_takes_time_even_if_there_is_nothing_to_compute() -> None:
    assert 1_000 < differentiating_ns(2, 3, torch.device("cpu")) < 10_000_000
