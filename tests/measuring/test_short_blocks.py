"""The laws of short blocks: right beside other programs, alike in both directions, capped with a reason, never 1.00."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from torchstone.measuring import needs_reference_alone, needs_single_calls, timing
from torchstone.measuring.short_blocks import (
    METHOD,
    MOST_HALF_WIDTH,
    SAME_WITHIN,
    _in_blocks,
    is_doubtful,
    is_precise,
)
from torchstone.measuring.speedup import FAR_RATIO
from torchstone.schema import Block, Measurement, Party, Way

CALLS, BLOCK_NS, SHIM_NS = 4, 250_000.0, 20_000.0
Shown = dict[Party, float]


def blocks(
    own_ns: Shown,
    way: Way = "called",
    pairs: int = 30,
    calls: int = CALLS,
    busy: float = 0.3,
    seed: int = 1,
    first: int = 0,
    noise: float = 0.02,
) -> list[Block]:
    """Own times per call, in blocks of which a share waits for a core."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(first, first + pairs):
        for party, ns in {**own_ns, "shim": 0.0}.items():
            elapsed = calls * (SHIM_NS + ns) * math.exp(noise * abs(rng.standard_normal()))
            elapsed += BLOCK_NS * math.exp(0.1 * abs(rng.standard_normal()))
            elapsed += rng.exponential(3e6) if rng.random() < busy else 0.0
            claimed = calls * (ns + (5_000 if party == "shim" else 0))
            found.append(Block(number, party, calls, round(elapsed), round(claimed), way))
    return found


def measurement(*parts: list[Block], **facts: object) -> Measurement:
    every = tuple(block for part in parts for block in part)
    whole = Measurement(METHOD, every, 0, 1, threads=1, distinct_inputs=CALLS, bytes_per_call=8)
    return msgspec.structs.replace(whole, **facts)


def beside(candidate_ns: float, reference_ns: float, **how: object) -> list[Block]:
    return blocks({"candidate": candidate_ns, "reference": reference_ns}, **how)  # type: ignore[arg-type]


def confirmed(candidate_ns: float, reference_ns: float, alone_ns: float | None = None, seed: int = 1) -> Measurement:
    """The same ratio in chains, and the reference without the candidate."""
    chained = beside(candidate_ns, reference_ns, way="chained", first=100, seed=seed + 1)
    alone = blocks({"reference": alone_ns or reference_ns}, "alone", 12, first=200, seed=seed + 2)
    return measurement(beside(candidate_ns, reference_ns, seed=seed), chained, alone)


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("pairs", [12, 24, 60])
def test_intervals_beside_other_programs_hold_the_truth(busy: float, pairs: int) -> None:
    found = [timing(measurement(beside(1e5, 1e5, pairs=pairs, busy=busy, seed=seed))).speedup for seed in range(60)]
    known = [each for each in found if each is not None]
    assert sum(each.low <= 1 <= each.high for each in known) >= 0.95 * len(known)
    assert len(known) >= (15 if busy == 0.5 and pairs == 12 else 40)
    assert abs(np.mean([math.log(each.ratio) for each in known])) < 0.01


@pytest.mark.parametrize("seed", range(12))
def test_swapping_the_parties_inverts_what_the_blocks_show(seed: int) -> None:
    there = timing(measurement(beside(1e5, 1.02e5, seed=seed))).speedup
    other = [
        msgspec.structs.replace(b, party={"candidate": "reference", "reference": "candidate"}.get(b.party, b.party))
        for b in beside(1e5, 1.02e5, seed=seed)
    ]
    back = timing(measurement(other)).speedup
    assert there is not None
    assert back is not None
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert not there.capped
    assert not back.capped


@pytest.mark.parametrize("truth", [0.5, 0.8, 1.25, 2.0, 3.0])
def test_a_known_ratio_of_work_is_reported_in_both_directions(truth: float) -> None:
    found = [timing(confirmed(1e5, truth * 1e5, seed=seed)) for seed in range(20)]
    known = [each.speedup for each in found if each.speedup is not None]
    assert len(known) >= 18
    assert sum(each.low <= truth <= each.high for each in known) >= 0.9 * len(known)
    assert np.mean([math.log(each.ratio) for each in known]) == pytest.approx(math.log(truth), abs=0.05)
    for each in found:
        if each.speedup is not None:
            assert each.reference_ns / each.candidate_ns == pytest.approx(each.speedup.ratio)


@pytest.mark.parametrize("truth", [0.5, 1.0, 1.6])
def test_on_warm_caches_times_are_those_of_repeated_calls_and_the_ratio_stays_that_of_blocks(truth: float) -> None:
    cold = confirmed(1e5, truth * 1e5)
    repeated = [
        Block(300 + n, "reference", calls, 40_000 + 3_000 * calls + n, 1, "repeated")
        for n in range(12)
        for calls in (1, 50)
    ]
    there, warm = timing(cold), timing(msgspec.structs.replace(cold, blocks=(*cold.blocks, *repeated)))
    assert warm.reference_ns == pytest.approx(3_000)
    assert warm.speedup == there.speedup
    assert there.speedup is not None
    assert warm.candidate_ns == pytest.approx(3_000 / there.speedup.ratio)
    assert warm.reference_rounds_ns.median == pytest.approx(
        there.reference_rounds_ns.median * 3_000 / there.reference_ns
    )


def test_repeated_calls_that_chance_has_hidden_change_no_time() -> None:
    cold = beside(1e5, 1e5)
    repeated = [Block(300 + n, "reference", calls, 40_000, 1, "repeated") for n in range(12) for calls in (1, 50)]
    assert timing(measurement(cold, repeated)).reference_ns == timing(measurement(cold)).reference_ns


def test_equal_kernels_are_the_same_though_intervals_allow_for_the_placement_of_memory() -> None:
    found = [timing(measurement(beside(1e5, 1e5, busy=0.0, seed=seed))).speedup for seed in range(20)]
    assert {each.outcome for each in found if each is not None} == {"same"}


@pytest.mark.parametrize("truth", [0.85, 0.9, 0.95, 1.05])
def test_what_is_called_the_same_lies_wholly_within_noise_and_placement(truth: float) -> None:
    found = [timing(measurement(beside(1e5, truth * 1e5, seed=seed))).speedup for seed in range(20)]
    same = [each for each in found if each is not None and each.outcome == "same"]
    assert all(each.low >= 1 / (1 + SAME_WITHIN) and each.high <= 1 + SAME_WITHIN for each in same)
    assert not same or abs(truth - 1) <= SAME_WITHIN


def test_an_interval_that_says_nothing_leaves_the_case_undecided() -> None:
    found = timing(measurement(beside(1e5, 1e5, pairs=8, busy=0.9)))
    assert found.speedup is None
    assert "too wide" in found.unresolved


@pytest.mark.parametrize("calls", [1, 8])
def test_noise_that_favours_the_candidate_counts_as_little_as_noise_against_it(calls: int) -> None:
    """Otherwise the mean over cases would lean to one side on a busy machine."""
    far = 0
    for seed in range(60):
        found = measurement(beside(1e5, 1e5, pairs=10, busy=0.7, noise=0.2, seed=seed, calls=calls))
        swapped = {"candidate": "reference", "reference": "candidate", "shim": "shim"}
        turned = [msgspec.structs.replace(block, party=swapped[block.party]) for block in found.blocks]
        one, other = _in_blocks(found.blocks)[0], timing(found).speedup
        if one is None or not one.low <= 1 <= one.high:
            continue
        assert (other is None) == (timing(measurement(turned)).speedup is None)
        far += other is None
        assert other is None or 1 / FAR_RATIO <= other.ratio <= FAR_RATIO
    assert far, "some were far from 1"


def test_no_interval_that_is_shown_is_wider_than_allowed() -> None:
    found = [timing(measurement(beside(1e5, 1e5, pairs=12, busy=0.6, seed=seed))).speedup for seed in range(40)]
    known = [each for each in found if each is not None]
    assert known
    assert all(math.log(each.high / each.low) / 2 <= math.log1p(MOST_HALF_WIDTH) for each in known)


def test_a_speed_that_nothing_confirms_is_undecided_and_never_one() -> None:
    found = measurement(beside(1e5, 2e5))
    assert needs_single_calls(found.blocks)
    assert timing(found).speedup is None
    assert "single calls do not confirm" in timing(found).unresolved


def test_a_speed_that_chains_refute_is_capped_and_says_so() -> None:
    chained = beside(1e5, 1.02e5, way="chained", first=100, seed=2)
    found = timing(measurement(beside(4e4, 1e5), chained))
    assert found.speedup is not None
    assert found.speedup.ratio < 1.1
    assert "calls one at a time" in found.speedup.capped
    assert "2." in found.speedup.capped
    assert found.speedup.low < found.speedup.ratio < found.speedup.high
    assert found.reference_ns / found.candidate_ns == pytest.approx(found.speedup.ratio)
    assert found.speedup.outcome != "faster"


def test_a_cap_makes_no_kernel_slower_than_the_reference() -> None:
    chained = beside(3e5, 1e5, way="chained", first=100, seed=2)
    found = timing(measurement(beside(4e4, 1e5), chained))
    assert found.speedup is None
    assert "contradictory" in found.unresolved


@pytest.mark.parametrize("way", ["alone", "beforehand"])
def test_a_reference_that_was_slow_only_beside_the_candidate_caps_the_speed(way: Way) -> None:
    chained = beside(1e5, 2e5, way="chained", first=100, seed=2)
    alone = blocks({"reference": 1e5}, way, 12, first=200, seed=3)
    found = timing(measurement(beside(1e5, 2e5), chained, alone))
    assert found.speedup is not None
    assert found.speedup.ratio < 1.1
    assert "candidate" in found.speedup.capped
    assert found.speedup.low < found.speedup.ratio < found.speedup.high


def test_a_candidate_that_has_not_ended_leaves_its_speed_undecided() -> None:
    found = timing(msgspec.structs.replace(confirmed(1e5, 2e5), never_alone="it had not ended"))
    assert found.speedup is None
    assert "it had not ended" in found.unresolved


def test_only_a_speed_beyond_one_needs_the_reference_alone() -> None:
    chained = beside(1e5, 2e5, way="chained", first=100, seed=2)
    assert needs_reference_alone(measurement(beside(1e5, 2e5), chained))
    assert not needs_reference_alone(measurement(beside(1e5, 1e5)))
    assert not needs_reference_alone(measurement(beside(2e5, 1e5)))


def test_blocks_of_one_call_need_no_other_confirmation() -> None:
    found = measurement(beside(5e5, 1e6, calls=1))
    assert not needs_single_calls(found.blocks)
    speedup = timing(found).speedup
    assert speedup is not None
    assert speedup.outcome == "faster"


def test_what_handling_a_call_may_save_is_no_speed() -> None:
    single = beside(1_000.0, 6_000.0, way="chained", first=100, seed=2, noise=0.0, busy=0.0, calls=400)
    short = beside(1_000.0, 6_000.0, calls=400, noise=0.0, busy=0.0)
    found = timing(measurement(short, single)).speedup
    assert found is None or found.outcome != "faster"


def test_constant_bytes_and_another_order_of_memory_cap_a_speed() -> None:
    plain = timing(confirmed(1e5, 2e5)).speedup
    constant = timing(msgspec.structs.replace(confirmed(1e5, 2e5), preparable_share=0.4)).speedup
    relaid = timing(msgspec.structs.replace(confirmed(1e5, 2e5), relaying_ns=6e4)).speedup
    assert plain is not None
    assert constant is not None
    assert relaid is not None
    assert constant.ratio == pytest.approx(0.6 * plain.ratio, rel=0.01)
    assert "same for all inputs" in constant.capped
    assert relaid.ratio == pytest.approx(plain.ratio / 1.6, rel=0.05)
    assert "the reference's strides" in relaid.capped


def test_precise_enough_is_told_from_doubtful() -> None:
    quiet, noisy = beside(1e5, 1e5, busy=0.0, pairs=60), beside(1e5, 1e5, busy=0.6, pairs=12, seed=3)
    assert is_precise(quiet, 0.05)
    assert not is_doubtful(quiet)
    assert not is_precise(noisy, 0.02)
    assert is_doubtful(noisy)
    assert is_precise(beside(4e5, 1e5, busy=0.0), 0.001), "hopeless"
    assert is_doubtful(beside(1e5, 1.12e5, busy=0.0, noise=0.0))
    assert is_doubtful(beside(1.12e5, 1e5, busy=0.0, noise=0.0))


def test_without_pairs_there_is_nothing() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        timing(measurement(blocks({"reference": 1e5})))
    assert "are needed" in timing(measurement(beside(1e5, 1e5, pairs=4))).unresolved
