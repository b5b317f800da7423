"""A speed counts as far as single calls show it too."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest

from torchstone.measuring import needs_confirmation, timing
from torchstone.measuring.confirmation import as_if_warm, charged, confirmation_of, own_times_ns, ratio_interval
from torchstone.measuring.long_block_experiment import Times, TimingPlan, confirmations, rounds
from torchstone.measuring.long_blocks import speedup_in_long_blocks
from torchstone.measuring.speedup import FAR_RATIO, NOISE_BAND
from torchstone.schema import Block, Measurement, Party, Way

LONG = 32
BLOCK_NS, SHIM_NS = 60_000.0, 1_000.0


class Simulated:
    """Takes so long for a call, so long for a block however many calls it has, and some noise."""

    way: Way = "called"

    def __init__(self, call_ns: float, fixed_ns: float, noise_ns: float, rng: np.random.Generator) -> None:
        self._call_ns, self._fixed_ns, self._noise_ns, self._rng = call_ns, fixed_ns, noise_ns, rng

    def prepare(self, lengths: tuple[int, ...]) -> None: ...

    def run(self, calls: int) -> Times:
        noise = abs(self._rng.standard_normal()) * self._noise_ns
        elapsed = round(BLOCK_NS + self._fixed_ns + calls * (SHIM_NS + self._call_ns) + noise)
        return Times(elapsed, round(calls * (SHIM_NS + self._call_ns)))


def blocks_of(
    candidate_ns: float, fixed_ns: float, noise_ns: float, seed: int, reference_ns: float = 100_000.0
) -> list[Block]:
    rng = np.random.default_rng(seed)
    contestants: dict[Party, Simulated] = {
        "candidate": Simulated(candidate_ns, fixed_ns, noise_ns, rng),
        "reference": Simulated(reference_ns, 0, noise_ns, rng),
        "shim": Simulated(0, 0, noise_ns, rng),
    }
    plan = TimingPlan(rounds=7, budget_seconds=0, half_width=0, block_ns=1, most_rounds=7)
    order = random.Random(seed)
    found = rounds(contestants, (1, LONG), plan, order, lambda *_: False)  # type: ignore[arg-type]
    confirmations(contestants, found, 1, plan, order, needs_confirmation)  # type: ignore[arg-type]
    return found


def measured(blocks: list[Block]) -> Measurement:
    return Measurement("blocks-less-shim", tuple(blocks), 0, 1, threads=1, distinct_inputs=2, bytes_per_call=8)


@pytest.mark.parametrize("seed", range(10))
def test_an_honest_speed_is_confirmed(seed: int) -> None:
    speedup = timing(measured(blocks_of(50_000.0, 0, 5_000, seed))).speedup
    assert speedup is not None
    assert (speedup.outcome, speedup.one_at_a_time) == ("faster", "confirmed")
    assert speedup.ratio == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("gain", [1.5, 3.0, 20.0])
def test_who_handles_a_block_at_once_gets_what_single_calls_show(seed: int, gain: float) -> None:
    """The work of a block is done in one go: a single call costs what the reference's does."""
    batched = 100_000.0 / gain
    result = timing(measured(blocks_of(batched, 100_000.0 - batched, 5_000, seed)))
    assert result.speedup is not None
    assert result.speedup.one_at_a_time == "refuted"
    assert result.speedup.ratio < 1.1
    assert result.speedup.low <= 1.0 <= result.speedup.high * 1.05
    assert result.speedup.outcome != "faster"


def test_where_single_calls_drown_in_noise_no_speed_is_claimed() -> None:
    result = timing(measured(blocks_of(1_000.0, 1_000.0, 20_000, 3, reference_ns=2_000.0)))
    assert result.speedup is None or result.speedup.outcome != "faster"


@pytest.mark.parametrize("seed", range(10))
def test_who_keeps_it_undecided_gets_no_more_than_single_calls_leave_no_doubt_about(seed: int) -> None:
    """A batch, slow in its first rounds, whose single calls dawdle now and then: wide intervals, nothing refuted."""
    rng = np.random.default_rng(seed)
    blocks = [
        msgspec.structs.replace(
            block,
            elapsed_ns=block.elapsed_ns
            + (2_500_000 if block.calls == LONG and block.round < 3 else 0)
            + (1_500_000 if block.calls == 1 and rng.random() < 0.4 else 0),
        )
        if block.party == "candidate"
        else block
        for block in blocks_of(25_000.0, 75_000.0, 5_000, seed)
    ]
    speedup = timing(measured(blocks)).speedup
    assert speedup is None or speedup.ratio <= 1.1


def test_more_single_calls_are_made_only_while_they_are_needed() -> None:
    clear = blocks_of(50_000.0, 0, 100, 1)
    slower = blocks_of(150_000.0, 0, 5_000, 1)
    noisy = blocks_of(80_000.0, 0, 60_000, 1)
    usual = 7 * 3 * 2
    assert len(clear) == usual
    assert len(slower) == usual
    assert len(noisy) > usual


def test_the_interval_of_single_calls_covers_their_ratio() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own = np.column_stack((100 + 5 * rng.standard_normal(20), 150 + 5 * rng.standard_normal(20)))
        found = ratio_interval(own)
        assert found is not None
        covered += found[1] <= 1.5 <= found[2]
    assert covered >= 90


def test_too_few_single_calls_say_nothing() -> None:
    assert confirmation_of(own_times_ns([]), own_times_ns([]), 2.0, 1.03) == "open"


@pytest.mark.parametrize("seed", range(10))
def test_who_saves_what_handling_a_call_costs_is_not_faster_for_it(seed: int) -> None:
    """Its calls take as long as the reference's; replies come without what every other worker does for them."""
    blocks = [
        msgspec.structs.replace(block, elapsed_ns=block.elapsed_ns - round(block.calls * SHIM_NS))
        if block.party == "candidate"
        else block
        for block in blocks_of(3 * SHIM_NS, 0, 100, seed, reference_ns=3.0 * SHIM_NS)
    ]
    speedup = timing(measured(blocks)).speedup
    assert speedup is None or speedup.ratio <= 1.05


@pytest.mark.parametrize(
    ("some", "all_of_it", "left"),
    [
        ({"preparable_share": 0.25}, {"preparable_share": 1.0}, 1.5),
        ({"relaying_ns": 25_000.0}, {"relaying_ns": 60_000.0}, 4 / 3),
    ],
    ids=["could be prepared", "lies elsewhere than torch's"],
)
def test_a_speed_counts_as_far_as_nothing_else_explains_it(
    some: dict[str, float], all_of_it: dict[str, float], left: float
) -> None:
    measurement = measured(blocks_of(50_000.0, 0, 500, 1))
    found = timing(msgspec.structs.replace(measurement, **some))
    none = timing(msgspec.structs.replace(measurement, **all_of_it))
    part = found.speedup
    assert part is not None
    assert part.ratio == pytest.approx(left, rel=0.05)
    assert part.outcome == "faster"
    assert "x in long blocks; " in part.capped
    assert part.low < part.ratio < part.high
    assert found.reference_ns / found.candidate_ns == pytest.approx(part.ratio)
    assert none.speedup is None, "never 1.00"
    assert "x in long blocks; " in none.unresolved


def noisy(ratio: float, single_ratio: float, noise: float, seed: int) -> Measurement:
    """Long blocks that vary, beside single calls with a ratio of their own."""
    rng = np.random.default_rng(seed)
    blocks: list[Block] = []
    for first, count, calls, shown in ((0, 10, 10, ratio), (100, 12, 1, single_ratio)):
        for number in range(first, first + count):
            for party, ns in (("candidate", 1e5), ("reference", shown * 1e5)):
                taken = round(calls * ns * math.exp(rng.normal(0, noise)))
                blocks.append(Block(number, party, calls, taken, taken))  # type: ignore[arg-type]
            blocks.append(Block(number, "shim", calls, 1_000, 200))
    return measured(blocks)


def test_what_counts_for_less_says_so_however_wide_its_interval_and_times_agree_with_its_ratio() -> None:
    reduced = 0
    for seed in range(60):
        measurement = noisy(1.3, 1.2, 0.1, seed)
        in_blocks, _ = speedup_in_long_blocks(measurement.blocks)
        found = timing(measurement)
        assert in_blocks is not None
        if found.speedup is None or found.speedup.ratio >= in_blocks.ratio / (1 + NOISE_BAND):
            continue
        reduced += 1
        assert "x in long blocks; " in found.speedup.capped
        assert found.reference_ns / found.candidate_ns == pytest.approx(found.speedup.ratio)
    assert reduced > 10


def test_far_from_1_an_interval_that_contains_1_says_nothing_in_either_direction() -> None:
    for seed in range(200):
        found = timing(noisy(1.0, 1.0, 0.4, seed)).speedup
        assert found is None or 1 / FAR_RATIO <= found.ratio <= FAR_RATIO or not found.low <= 1 <= found.high


class Cold(Simulated):
    """Takes longer where a call comes alone, and per call something else than in a long block."""

    def __init__(self, long_ns: float, single_ns: float, rng: np.random.Generator) -> None:
        super().__init__(long_ns, 0, 5_000, rng)
        self._long_ns, self._single_ns = long_ns, single_ns

    def run(self, calls: int) -> Times:
        self._call_ns = self._long_ns if calls > 1 else self._single_ns
        return super().run(calls)


@pytest.mark.parametrize("seed", range(10))
def test_a_reference_that_is_cold_in_single_calls_confirms_nothing(seed: int) -> None:
    """The candidate handles long blocks together, and waits for single calls where torch is woken for them."""
    rng = np.random.default_rng(seed)
    parties: dict[Party, Simulated] = {
        "candidate": Cold(20_000.0, 100_000.0, rng),
        "reference": Cold(100_000.0, 400_000.0, rng),
        "shim": Cold(0.0, 0.0, rng),
    }
    plan = TimingPlan(rounds=7, budget_seconds=0, half_width=0, block_ns=1, most_rounds=7)
    order = random.Random(seed)
    found = rounds(parties, (1, LONG), plan, order, lambda *_: False)  # type: ignore[arg-type]
    confirmations(parties, found, 1, plan, order, needs_confirmation)  # type: ignore[arg-type]
    speedup = timing(measured(found)).speedup
    assert speedup is None or speedup.ratio <= 1.11


def in_rounds(times: dict[Way, dict[Party, tuple[int, int]]]) -> list[Block]:
    """Six rounds; nanoseconds a block, by the judge's clock and by the worker's."""
    return [
        Block(number, party, LONG, elapsed_ns, claimed_ns, way)
        for number in range(6)
        for way, parties in times.items()
        for party, (elapsed_ns, claimed_ns) in parties.items()
    ]


def test_in_chains_the_candidate_is_charged_for_what_lies_between_calls() -> None:
    parties: dict[Party, tuple[int, int]] = {
        "candidate": (900_000, 0), "reference": (2_000_000, 0), "shim": (600_000, 400_000),
    }  # fmt: skip
    blocks = in_rounds({"chained": parties})
    own = own_times_ns(blocks)
    assert own.tolist() == [[300_000.0, 1_400_000.0]] * 6
    assert charged(own, blocks).tolist() == [[700_000.0, 1_400_000.0]] * 6


@pytest.mark.parametrize("alone_ns", [700_000, 500_000, 900_000])
def test_the_reference_is_no_slower_in_chains_than_in_long_blocks_beside_the_candidate_or_without(
    alone_ns: int,
) -> None:
    blocks = in_rounds(
        {
            "chained": {"candidate": (900_000, 0), "reference": (2_000_000, 0), "shim": (600_000, 400_000)},
            "called": {"candidate": (150_000, 0), "reference": (800_000, 0), "shim": (100_000, 50_000)},
            "alone": {"reference": (alone_ns, 0), "shim": (100_000, 50_000)},
        }
    )
    least = min(800_000, alone_ns) - 100_000
    assert as_if_warm(own_times_ns(blocks), blocks).tolist() == [[300_000.0, float(least)]] * 6


def test_a_chain_that_refutes_counts_no_further_than_with_what_lies_between_its_calls() -> None:
    """Done natively, that takes no time: long blocks say 7x, chains 3x, and nobody has been quicker than torch."""
    rng = np.random.default_rng(3)
    blocks = in_rounds(
        {
            "called": {"candidate": (200_000, 0), "reference": (800_000, 0), "shim": (100_000, 50_000)},
            "chained": {"candidate": (2_000_000, 0), "reference": (3_000_000, 0), "shim": (1_500_000, 1_400_000)},
        }
    )
    noisy = [msgspec.structs.replace(b, elapsed_ns=b.elapsed_ns + int(rng.integers(-2000, 2000))) for b in blocks]
    found = timing(measured(noisy))
    assert found.speedup is None
    assert found.unresolved.endswith("single calls do not support more")
