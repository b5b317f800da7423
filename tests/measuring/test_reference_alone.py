"""A speed counts as far as the reference bears it out when the candidate is gone."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from torchstone.measuring import rests_on_the_judges_clock, timing
from torchstone.measuring.times_per_call import CONFIRMS_NO_SPEEDUP, ratio_alone
from torchstone.schema import Block, Measurement, Party, Way

CALLS, SHIM_NS = 8, 20_000
ROUNDS = 9


def measurement(
    candidate_ns: float,
    reference_ns: float,
    alone_ns: float | None,
    noise: float = 0.01,
    seed: int = 1,
    slowed_ns: float = 0.0,
    before_ns: float | None = None,
) -> Measurement:
    """``slowed_ns``: by how much longer the shim takes when the candidate is gone."""
    rng = np.random.default_rng(seed)
    blocks: list[Block] = []

    def add(first: int, times: dict[Party, float], way: Way) -> None:
        for number in range(first, first + ROUNDS):
            for party, ns in times.items():
                for calls in (1, CALLS) if way == "called" else (CALLS,):
                    elapsed = round(calls * (SHIM_NS + ns) * (1 + noise * rng.standard_normal()))
                    blocks.append(Block(number, party, calls, elapsed, elapsed, way))

    add(0, {"candidate": candidate_ns, "reference": reference_ns, "shim": 0.0}, "called")
    if alone_ns is not None:
        add(ROUNDS, {"reference": alone_ns, "shim": slowed_ns}, "alone")
    if before_ns is not None:
        add(0, {"reference": before_ns, "shim": 0.0}, "beforehand")
    return Measurement("test", tuple(blocks), 0, 0, 1, CALLS, 0)


def refuse(found: Measurement) -> None:
    """No speed is left of it: none within noise is shown as one, and a row without a speedup says why."""
    result = timing(found)
    if result.speedup is None:
        assert "without the candidate" in result.unresolved
    else:
        assert result.speedup.outcome != "faster"
        assert result.speedup.ratio <= 1.04
        assert result.speedup.low < result.speedup.ratio < result.speedup.high
        assert "without the candidate" in result.speedup.capped


def test_a_reference_that_was_slow_only_beside_the_candidate_makes_nobody_fast() -> None:
    refuse(measurement(1e6, 2.2e6, 1e6))


def test_a_reference_that_was_quick_only_before_the_candidate_came_makes_nobody_fast() -> None:
    """What a candidate leaves behind may work on after its end; before it came there was nothing of it."""
    refuse(measurement(1e6, 2.2e6, 2.2e6, before_ns=1e6))


def test_a_reference_that_was_slow_before_the_candidate_came_bears_nothing_out() -> None:
    refuse(measurement(1e6, 2.2e6, 1e6, before_ns=2.2e6))


def test_a_speed_that_the_reference_bears_out_in_part_is_capped_and_keeps_its_width() -> None:
    plain = timing(measurement(1e6, 2.2e6, 2.2e6)).speedup
    found = timing(measurement(1e6, 2.2e6, 1.5e6))
    assert plain is not None
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(1.5 * 1.03, rel=0.03)
    assert "the reference took 1.5" in found.speedup.capped
    assert found.speedup.capped.startswith("2.2")
    assert found.speedup.high / found.speedup.low >= plain.high / plain.low * 0.99
    assert found.reference_ns / found.candidate_ns == pytest.approx(found.speedup.ratio)


@pytest.mark.parametrize("seed", range(6))
def test_an_honest_speed_stays(seed: int) -> None:
    speedup = timing(measurement(1e6, 1.5e6, 1.5e6, seed=seed, before_ns=1.5e6)).speedup
    assert speedup is not None
    assert speedup.outcome == "faster"
    assert speedup.ratio == pytest.approx(1.5, rel=0.03)


def test_where_the_last_look_is_too_noisy_nothing_beyond_doubt_counts() -> None:
    for seed in range(6):
        speedup = timing(measurement(1e6, 2.2e6, 1.4e6, noise=0.35, seed=seed)).speedup
        assert speedup is None or speedup.outcome != "faster" or speedup.low > 1.03
        assert speedup is None or speedup.ratio < 2.0


def test_a_shim_that_was_slow_when_the_candidate_was_gone_makes_nobody_fast() -> None:
    """Something of the candidate was left, then, and slowed both: nothing tells how long the reference takes."""
    for slowed_ns in (0.6e6, 0.9e6, 2e6):
        refuse(measurement(1e6, 2.2e6, 1e6 + slowed_ns, slowed_ns=slowed_ns))


def test_where_nothing_of_the_candidates_time_is_left_nothing_is_borne_out() -> None:
    blocks = [
        msgspec.structs.replace(block, elapsed_ns=block.calls * 2_000_000) if block.party == "shim" else block
        for block in measurement(1e6, 2.2e6, 4e6).blocks
    ]
    assert ratio_alone(blocks) == CONFIRMS_NO_SPEEDUP


def test_a_reference_that_could_not_be_timed_alone_bears_nothing_out() -> None:
    found = msgspec.structs.replace(measurement(1e6, 2.2e6, None), never_alone="the cores were not quiet")
    assert timing(found).speedup is None
    assert "the cores were not quiet" in timing(found).unresolved


def test_only_a_speed_by_the_judges_clock_needs_it() -> None:
    assert rests_on_the_judges_clock(measurement(1e6, 1.5e6, None))
    assert not rests_on_the_judges_clock(measurement(1e6, 1e6, None))
    assert not rests_on_the_judges_clock(measurement(1.5e6, 1e6, None))
