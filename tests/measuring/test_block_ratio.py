"""The ratio of two sides from blocks in turn: symmetric, honest about its doubt, unmoved by single slow blocks."""

from __future__ import annotations

import numpy as np
import pytest

from torchstone.measuring.block_ratio import LEAST_ROUNDS, block_ratio

KINDS = ("even", "tails", "drift")


def blocks(random: np.random.Generator, rounds: int, kind: str) -> np.ndarray:
    """Both sides equally fast, in milliseconds."""
    times = np.exp(0.02 * random.standard_normal((2, rounds)))
    if kind == "tails":
        hit = random.random((2, rounds)) < 0.15
        times[hit] *= 1 + random.exponential(1.0, hit.sum())
    if kind == "drift":
        times *= np.exp(np.cumsum(0.02 * random.standard_normal(rounds)))
    return times


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize("quantile", [0.2, 0.5])
def test_swapping_the_sides_inverts_ratio_and_interval(kind: str, is_paired: bool, quantile: float) -> None:
    random = np.random.default_rng(3)
    for rounds in (5, 12, 60):
        first, second = blocks(random, rounds, kind)
        one, other = block_ratio(first, second, quantile, is_paired), block_ratio(second, first, quantile, is_paired)
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.ratio <= one.high
        assert (other.ratio, other.low, other.high) == pytest.approx((1 / one.ratio, 1 / one.high, 1 / one.low))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [8, 20, 60])
def test_the_interval_of_equal_sides_holds_one_nineteen_times_of_twenty(kind: str, rounds: int) -> None:
    random = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        found = block_ratio(*blocks(random, rounds, kind), 0.2)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held >= 180  # 190 are expected; 10 less have a probability of 1 in 500


def test_the_interval_is_narrow_where_there_is_little_noise() -> None:
    found = block_ratio(*blocks(np.random.default_rng(7), 60, "even"), 0.2)
    assert found.low is not None
    assert found.high is not None
    assert found.high / found.low < 1.05


def test_what_no_round_shows_widens_the_interval_on_both_sides() -> None:
    same = [1.0] * 10
    found = block_ratio(same, same, 0.5, placement_doubt=0.03)
    assert (found.low, found.high) == (pytest.approx(np.exp(-0.03)), pytest.approx(np.exp(0.03)))


def test_a_few_slow_blocks_of_one_side_do_not_move_the_ratio() -> None:
    fast = np.full(60, 1.0)
    slowed = np.where(np.arange(60) % 3 == 0, 5.0, 2.0)
    assert block_ratio(slowed, fast, 0.2).ratio == pytest.approx(2.0)


def test_too_few_rounds_give_a_ratio_without_an_interval() -> None:
    found = block_ratio([2.0] * (LEAST_ROUNDS - 1), [1.0] * (LEAST_ROUNDS - 1), 0.5)
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), None, None)
    assert block_ratio([3.0], [1.0], 0.2).ratio == pytest.approx(3.0)


def test_a_side_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="positive times"):
        block_ratio([], [1.0], 0.5)
    with pytest.raises(ValueError, match="positive times"):
        block_ratio([0.0] * 6, [1.0] * 6, 0.5)
