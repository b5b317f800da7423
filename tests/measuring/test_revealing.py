"""The time for which the judge writes arguments is not the parties', unless the candidate made use of it."""

from __future__ import annotations

import numpy as np
import pytest

from torchstone.measuring.times_per_call import less_revealing, per_call
from torchstone.schema import Block, Party

ROUNDS, CALLS = 12, 16
CALL_NS: dict[Party, int] = {"candidate": 30_000, "reference": 60_000, "shim": 0}
WRITING_NS, NOISE_NS = 500_000, 40_000


def blocks(stolen_ns: int = 0, seed: int = 1) -> list[Block]:
    """Writing takes long and varies; of the candidate's calls so much is done meanwhile, which delays it."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(ROUNDS):
        for party, call_ns in CALL_NS.items():
            stolen = stolen_ns if party == "candidate" else 0
            revealing = WRITING_NS + round(rng.standard_normal() * NOISE_NS) + stolen
            own = 100_000 + CALLS * call_ns - stolen
            found.append(Block(number, party, CALLS, revealing + own, own, "captured", revealing))
    return found


def test_what_writing_takes_does_not_blur_the_times() -> None:
    net = per_call(blocks()).net
    assert np.ptp(net[:, 0]) == np.ptp(net[:, 1]) == 0
    assert net[0] == pytest.approx((CALL_NS["candidate"], CALL_NS["reference"]), rel=0.05)


@pytest.mark.parametrize("seed", range(8))
def test_who_begins_while_arguments_are_written_gains_no_more_than_the_doubt(seed: int) -> None:
    stolen = CALLS * CALL_NS["candidate"] * 3 // 4
    honest, early = (float(np.median(per_call(blocks(ns, seed)).net[:, 0])) for ns in (0, stolen))
    doubt_ns = 4 * NOISE_NS * np.sqrt(2 / ROUNDS) / CALLS
    assert early > honest - doubt_ns
    assert early < honest + doubt_ns


def test_calls_that_were_not_captured_keep_their_time() -> None:
    called = [Block(0, "candidate", 4, 1000, 900), Block(0, "reference", 4, 2000, 1900)]
    assert less_revealing(called) == called
