"""What the judge's own clock says about captured calls: blocks with a fixed cost, noise, and now and then a gap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchstone.measuring.long_blocks import speedup_in_long_blocks
from torchstone.measuring.speedup import Speedup
from torchstone.schema import Block, Party

CALLS, FIXED_NS, NOISE_NS = 20, 500_000, 30_000
ODD_SHARE, ODD_NS = 0.03, 600_000
PARTIES: tuple[Party, ...] = ("candidate", "reference", "shim")


def measured(ratio: float, rounds: int, seed: int, odd_share: float = ODD_SHARE) -> Speedup | None:
    """Claims are useless here, so that the judge's own figures are what is reported."""
    rng = np.random.default_rng(seed)
    own_ns = {"candidate": 600_000, "reference": 600_000 * ratio, "shim": 0}
    blocks = []
    for number in range(rounds):
        for party in PARTIES:
            odd = rng.exponential(ODD_NS) if rng.random() < odd_share else 0.0
            elapsed = FIXED_NS + own_ns[party] + rng.normal() * NOISE_NS + odd
            blocks.append(Block(number, party, CALLS, round(elapsed), 0, "captured"))
    return speedup_in_long_blocks(blocks)[0]


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("rounds", [5, 7, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(ratio: float, rounds: int) -> None:
    found = [measured(ratio, rounds, seed) for seed in range(400)]
    known = [speedup for speedup in found if speedup is not None]
    assert len(known) >= 396
    holds = np.mean([speedup.low <= ratio <= speedup.high for speedup in known])
    assert holds >= 0.92


def test_a_few_gaps_do_not_blind_the_judge() -> None:
    widths = []
    for seed in range(200):
        speedup = measured(1.0, 9, seed)
        assert speedup is not None
        widths.append(math.log(speedup.high / speedup.low) / 2)
    assert np.median(widths) < 0.07
    assert np.percentile(widths, 90) < 0.11


def test_two_equal_parties_are_not_called_faster_or_slower() -> None:
    outcomes = [speedup.outcome for seed in range(400) if (speedup := measured(1.0, 7, seed)) is not None]
    assert sum(outcome in ("faster", "slower") for outcome in outcomes) <= 4


def test_a_clock_that_sees_nothing_but_gaps_gives_no_ratio() -> None:
    blocks = [
        Block(n, p, CALLS, 500_000 + (10**9 if p == "shim" else 0), 0, "captured") for n in range(5) for p in PARTIES
    ]
    assert speedup_in_long_blocks(blocks)[0] is None
