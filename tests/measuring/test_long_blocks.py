"""The laws that timing statistics obey."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.measuring import distribution, is_precise_enough, timing
from torchstone.measuring.long_blocks import PLACEMENT_DOUBT, speedup_in_long_blocks
from torchstone.measuring.student_t import student_t_95
from torchstone.schema import Block, Measurement, Party

SHORT, LONG = 1, 20
START_NS = 30_000
"""What a block costs besides its calls; the slope must not see it."""


def measurement(blocks: list[Block]) -> Measurement:
    return Measurement("blocks-less-shim", tuple(blocks), 0, 1, threads=1, distinct_inputs=2, bytes_per_call=8)


def block(round_: int, party: Party, calls: int, per_call_ns: float, start_ns: int = START_NS) -> Block:
    elapsed = round(start_ns + calls * per_call_ns)
    return Block(round_, party, calls, elapsed, 0 if party == "shim" else elapsed)


def measured(
    candidate: list[float], reference: list[float], shim: float | None = 1000.0, scale: int = 1
) -> Measurement:
    """Rounds in which each party takes so many net nanoseconds a call, on top of the shim."""
    blocks = []
    for index, (own, other) in enumerate(zip(candidate, reference, strict=True)):
        off = shim or 0.0
        parties: dict[Party, float] = {"candidate": own + off, "reference": other + off}
        if shim is not None:
            parties["shim"] = off
        for party, per_call in parties.items():
            blocks += [block(index, party, calls, scale * per_call) for calls in (SHORT, LONG)]
    return measurement(blocks)


times = st.integers(100, 1000).map(lambda hundreds: hundreds * 100.0)
series = st.lists(st.tuples(times, times), min_size=3, max_size=12)


def noisy(rng: np.random.Generator, centre_ns: float, rounds: int, spread: float = 0.02) -> list[float]:
    return [float(value) for value in centre_ns * np.exp(spread * rng.standard_normal(rounds))]


def test_block_starting_cost_and_shim_are_taken_off() -> None:
    result = timing(measured([5000.0] * 5, [10000.0] * 5))
    assert (result.candidate_ns, result.reference_ns, result.shim_ns) == (5000.0, 10000.0, 2500.0)
    assert result.speedup is not None
    assert result.speedup.ratio == pytest.approx(2.0)
    assert result.speedup.outcome == "faster"


def test_a_round_with_one_block_size_uses_time_over_calls() -> None:
    blocks = [
        block(r, party, LONG, per_call, start_ns=0)
        for r in range(4)
        for party, per_call in (("candidate", 3000.0), ("reference", 2000.0), ("shim", 1000.0))
    ]
    result = timing(measurement(blocks))
    assert (result.candidate_ns, result.reference_ns) == (2000.0, 1000.0)
    assert result.speedup is not None
    assert result.speedup.outcome == "slower"


def test_without_a_shim_nothing_is_taken_off() -> None:
    result = timing(measured([5000.0] * 3, [5000.0] * 3, shim=None))
    assert (result.candidate_ns, result.shim_ns) == (6500.0, 0.0)


@pytest.mark.parametrize("own", [0.0, -500.0, 20.0])
def test_a_kernel_hidden_by_the_cost_of_calling_has_no_ratio(own: float) -> None:
    result = timing(measured([own] * 5, [5000.0] * 5))
    assert not result.resolved
    assert result.speedup is None
    assert "candidate" in result.unresolved


def test_two_rounds_are_too_few_for_an_interval() -> None:
    result = timing(measured([5000.0] * 2, [10000.0] * 2))
    assert not result.resolved
    assert "rounds" in result.unresolved


def test_a_measurement_without_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="both the candidate and the reference"):
        timing(measurement([block(0, "candidate", SHORT, 1.0)]))


def test_one_lost_round_does_not_decide() -> None:
    result = timing(measured([5000.0] * 9 + [-9000.0], [5000.0] * 10))
    assert result.speedup is not None
    assert result.speedup.ratio == pytest.approx(1.0)
    assert result.speedup.high < 100


@given(series, st.integers(2, 50))
def test_the_ratio_does_not_depend_on_the_unit_of_time(pairs: list[tuple[float, float]], scale: int) -> None:
    own, other = [a for a, _ in pairs], [b for _, b in pairs]
    small, large = measured(own, other), measured(own, other, scale=scale)
    assert timing(large).candidate_ns == pytest.approx(scale * timing(small).candidate_ns)
    there, _ = speedup_in_long_blocks(small.blocks)
    back, _ = speedup_in_long_blocks(large.blocks)
    assert there is not None
    assert back is not None
    assert there.ratio == pytest.approx(back.ratio)
    assert there.outcome == back.outcome


@given(series)
def test_swapping_the_parties_inverts_the_ratio_and_its_interval(pairs: list[tuple[float, float]]) -> None:
    own, other = [a for a, _ in pairs], [b for _, b in pairs]
    there, _ = speedup_in_long_blocks(measured(own, other).blocks)
    back, _ = speedup_in_long_blocks(measured(other, own).blocks)
    assert there is not None
    assert back is not None
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high)
    assert there.high == pytest.approx(1 / back.low)
    assert {there.outcome, back.outcome} in ({"faster", "slower"}, {"same"}, {"undecided"})


@given(series, st.randoms(use_true_random=False))
def test_the_order_in_which_blocks_are_stored_is_irrelevant(pairs: list[tuple[float, float]], random: object) -> None:
    taken = measured([a for a, _ in pairs], [b for _, b in pairs])
    shuffled = list(taken.blocks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert timing(taken) == timing(measurement(shuffled))


def drifting(rng: np.random.Generator, rounds: int, correlation: float) -> list[float]:
    """Times whose logarithms resemble the ones before them."""
    logs = [0.0]
    for _ in range(rounds - 1):
        logs.append(correlation * logs[-1] + math.sqrt(1 - correlation**2) * rng.standard_normal())
    return [float(value) for value in 1e5 * np.exp(0.05 * np.array(logs))]


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.92), (0.3, 0.90), (0.6, 0.82)])
def test_the_interval_allows_for_rounds_that_resemble_each_other(correlation: float, least: float) -> None:
    rng = np.random.default_rng(11)
    trials, covered = 300, 0
    for _ in range(trials):
        blocks = measured([1e5] * 40, drifting(rng, 40, correlation), shim=None).blocks
        speedup, _ = speedup_in_long_blocks(blocks)
        assert speedup is not None
        covered += speedup.low <= 1.0 <= speedup.high
    assert covered / trials >= least


def test_a_narrow_interval_and_a_hopeless_candidate_are_precise_enough() -> None:
    rng = np.random.default_rng(5)
    narrow = measured(noisy(rng, 1e5, 30, 0.01), noisy(rng, 1e5, 30, 0.01)).blocks
    wide = measured(noisy(rng, 1e5, 7, 0.2), noisy(rng, 1e5, 7, 0.2)).blocks
    hopeless = measured(noisy(rng, 5e5, 7, 0.2), noisy(rng, 1e5, 7, 0.2)).blocks
    assert is_precise_enough(narrow, 0.02)
    assert not is_precise_enough(wide, 0.02)
    assert is_precise_enough(hopeless, 0.02)


@given(st.lists(times, min_size=3, max_size=12))
def test_a_against_itself_contains_one(own: list[float]) -> None:
    speedup = timing(measured(own, own)).speedup
    assert speedup is not None
    assert speedup.low <= 1 <= speedup.high
    assert speedup.outcome == "same"


@given(series)
def test_the_interval_holds_the_ratio(pairs: list[tuple[float, float]]) -> None:
    speedup, _ = speedup_in_long_blocks(measured([a for a, _ in pairs], [b for _, b in pairs]).blocks)
    assert speedup is not None
    assert 0 < speedup.low <= speedup.ratio <= speedup.high < math.inf
    assert speedup.minimum_detectable_effect >= 0.03 - 1e-12


@pytest.mark.parametrize("rounds", [5, 10, 25])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(rounds: int) -> None:
    rng = np.random.default_rng(7)
    truth, trials, covered = 1.2, 200, 0
    for _ in range(trials):
        blocks = measured(noisy(rng, 1e5, rounds), noisy(rng, truth * 1e5, rounds), shim=None).blocks
        speedup, _ = speedup_in_long_blocks(blocks)
        assert speedup is not None
        covered += speedup.low <= truth <= speedup.high
    assert covered / trials >= 0.90


def test_noise_alone_is_hardly_ever_called_a_difference() -> None:
    rng = np.random.default_rng(8)
    outcomes = []
    for _ in range(200):
        speedup = timing(measured(noisy(rng, 1e5, 10, 0.05), noisy(rng, 1e5, 10, 0.05), shim=None)).speedup
        assert speedup is not None
        outcomes.append(speedup.outcome)
    assert sum(outcome in ("faster", "slower") for outcome in outcomes) <= 4


samples = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)


@given(samples)
def test_percentiles_are_monotone_and_lie_within_the_samples(values: list[float]) -> None:
    found = distribution(values, percentiles=(10, 99.9))
    ladder = [found.min, found.p25, found.p50, found.p75, found.p90, found.p95, found.p99, found.max]
    assert ladder == sorted(ladder)
    assert found.min <= found.mean <= found.max
    assert found.median == found.p50
    assert found.std >= 0
    assert set(found.percentiles) == {"10", "99.9"}
    assert found.min <= found.percentiles["10"] <= found.p25


@settings(max_examples=30)
@given(samples, st.randoms(use_true_random=False))
def test_a_distribution_does_not_depend_on_order(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert distribution(values) == distribution(shuffled)


def test_a_distribution_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        distribution([])


def captured(
    ratio: float, claimed_ratio: float, rounds: int = 20, noise: float = 0.02, calls: int = 100, seed: int = 1
) -> Measurement:
    """Captured blocks of which the judge sees one ratio, with noise, and the candidate claims another, without."""
    rng = np.random.default_rng(seed)
    blocks: list[Block] = []
    for number in range(rounds):
        own: dict[Party, tuple[float, float]] = {
            "candidate": (10_000.0, 10_000.0 * ratio / claimed_ratio),
            "reference": (10_000.0 * ratio, 10_000.0 * ratio),
            "shim": (0.0, 0.0),
        }
        for party, (seen, claimed) in own.items():
            elapsed = 500_000 + calls * seen * math.exp(noise * rng.standard_normal())
            blocks.append(Block(number, party, calls, round(elapsed), round(3000 + calls * claimed), "captured"))
    return measurement(blocks)


def test_claims_that_the_judge_bears_out_are_believed_for_their_precision() -> None:
    result = timing(captured(1.0, 1.0))
    assert result.clocked == "device"
    assert result.speedup is not None
    assert result.speedup.ratio == pytest.approx(1.0, abs=1e-6)
    assert result.speedup.outcome == "same"
    assert result.speedup.judged_low is not None
    assert result.candidate_ns == pytest.approx(10_000.0)


@pytest.mark.parametrize("lie", [0.5, 0.8, 1.2, 2.0, 10.0])
def test_a_lie_is_worth_nothing(lie: float) -> None:
    """What the judge saw counts, for the ratio and for the time."""
    result = timing(captured(1.0, lie))
    assert result.speedup is not None
    assert result.speedup.ratio == pytest.approx(1.0, abs=0.03)
    assert result.speedup.judged_low is None
    assert result.candidate_ns == pytest.approx(10_000.0, rel=0.03)


@given(st.floats(0.3, 3.0), st.floats(0.3, 3.0), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_claims_never_move_the_ratio_further_than_the_judge_doubts(ratio: float, claimed: float, seed: int) -> None:
    with_claims = speedup_in_long_blocks(captured(ratio, claimed, seed=seed).blocks)[0]
    without = speedup_in_long_blocks(captured(ratio, -1.0, seed=seed).blocks)[0]
    assert with_claims is not None
    assert without is not None
    assert abs(math.log(with_claims.ratio / without.ratio)) <= 0.1


def test_the_references_time_is_what_its_own_worker_says_though_the_candidate_is_not_believed() -> None:
    """The judge's clock is a tenth long, for both, and the candidate claims half of its time."""
    seen = [
        msgspec.structs.replace(block, elapsed_ns=block.elapsed_ns + (100_000 if block.party != "shim" else 0))
        for block in captured(1.0, 2.0, noise=0.005).blocks
    ]
    result = timing(measurement(seen))
    assert result.speedup is not None
    assert result.speedup.judged_low is None
    assert result.reference_ns == pytest.approx(10_000.0, rel=1e-3)
    assert result.candidate_ns == pytest.approx(10_000.0, rel=0.01)


def test_where_the_judge_is_in_doubt_claims_count_for_nothing() -> None:
    result = timing(captured(1.0, 1.0, rounds=6, noise=0.3))
    assert result.speedup is None or result.speedup.judged_low is None
    assert not is_precise_enough(captured(1.0, 1.0, rounds=6, noise=0.3).blocks, half_width=0.5)


def test_a_candidate_that_cannot_be_captured_is_held_against_the_device_time_of_the_reference() -> None:
    blocks = [
        msgspec.structs.replace(block, claimed_ns=block.elapsed_ns)
        for block in captured(0.2, 0.2).blocks
        if block.party != "candidate"
    ]
    for number in range(20):
        for party, per_call in (("candidate", 12_000.0), ("reference", 9_000.0), ("shim", 1_000.0)):
            blocks.append(block(number, party, LONG, per_call))  # type: ignore[arg-type]
    result = timing(measurement(blocks))
    assert result.clocked == "calls against device"
    assert result.candidate_ns == pytest.approx(11_000.0)
    assert result.reference_ns == pytest.approx(2_000.0, rel=0.1)
    assert result.speedup is not None
    assert result.speedup.outcome == "slower"
    assert result.candidate_call_ns == pytest.approx(11_000.0)
    assert result.reference_call_ns == pytest.approx(8_000.0)


def test_the_doubt_about_placement_does_not_keep_captured_rounds_from_being_enough() -> None:
    blocks = captured(1.0, 1.0, noise=0.005).blocks
    speedup, _ = speedup_in_long_blocks(blocks)
    assert speedup is not None
    assert math.log(speedup.high / speedup.low) / 2 == pytest.approx(PLACEMENT_DOUBT, rel=0.01)
    assert is_precise_enough(blocks, half_width=0.005)


@pytest.mark.parametrize(("freedom", "point"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (30, 2.0423), (1000, 1.9623)])
def test_points_of_students_t_are_those_of_the_tables(freedom: int, point: float) -> None:
    assert student_t_95(freedom) == pytest.approx(point, abs=5e-5)
