"""Rewards: bounded, monotone, and None exactly where nothing is known."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.api import Evaluation
from torchstone.errors import UsageError
from torchstone.gym.reward import (
    DEFAULT,
    RewardFacts,
    RewardSettings,
    facts_of,
    limit,
    parts_of,
    reward_of,
    reward_of_facts,
    speedup,
)
from torchstone.schema import (
    Agrees,
    Block,
    Case,
    Cheated,
    Crashed,
    Delegated,
    Disagrees,
    ErrorStatistics,
    ImplementationReference,
    Isolation,
    Measurement,
    Missing,
    Normal,
    Record,
    SpeedOfLight,
    Tensor,
    TimedOut,
    Unjudged,
    Unsupported,
    Verdict,
)

RELU = "aten.relu.default"
AGREES = Agrees(ErrorStatistics(), 3)
WRONG: tuple[Verdict, ...] = (
    Disagrees("check", "values", "at [0]: got 1, expected 2"),
    Crashed("check", "exception", "ValueError: no"),
    TimedOut("compile", 10.0, 10.5),
    Delegated("aten.relu.default"),
    Unsupported("candidate", "no float64"),
    Missing("nothing"),
)
EXCUSED: tuple[Verdict, ...] = (Unsupported("reference", "not here"), Unsupported("device", "not here"))
UNJUDGED = Unjudged("the judge died twice")
CHEATED = Cheated("measure", "clock", "claimed 1 ns, the slope says 100 ns")

shares = st.floats(0, 1)
speeds = st.none() | st.floats(1e-6, 1e6)
percents = st.none() | st.floats(0, 1e4)
facts = st.builds(RewardFacts, st.booleans(), st.booleans(), shares, speeds, percents)
settings = st.builds(
    RewardSettings,
    correctness_weight=st.floats(0.01, 10),
    speedup_weight=st.floats(0, 10),
    limit_weight=st.floats(0, 10),
    slow_speedup=st.floats(0.01, 0.9),
    fast_speedup=st.floats(1.0, 100),
    partial_credit=st.booleans(),
    no_code=st.floats(-1, 0),
    cheating=st.floats(-10, -1.01),
)


def record(verdict: Verdict, number: int = 0, measurement: Measurement | None = None) -> Record:
    case = Case("made", RELU, (Tensor((number + 1,), "float32", Normal()),), timed=measurement is not None)
    of = ImplementationReference("api", RELU, "python", "here", "key")
    return Record(f"job{number}", case, of, verdict, "api", "cpu", Isolation("none"), measurement)


def timed(ratio: float, noise: float, number: int = 0) -> Record:
    """A right kernel that is so many times as fast as the reference, give or take the noise."""
    chance = random.Random(number)
    took = {"candidate": 10_000 / ratio, "reference": 10_000.0, "shim": 0.0}
    blocks = tuple(
        Block(turn, party, calls, round(20_000 + calls * (own * math.exp(chance.gauss(0, noise)) + 1000)), 1)  # type: ignore[arg-type]
        for turn in range(30)
        for party, own in took.items()
        for calls in (1, 24)
    )
    now = time.time_ns()
    light = SpeedOfLight(4_000, 4_000, 8.0e9, 100.0)
    made = Measurement("blocks-less-shim", blocks, now, now, 1, 8, 8_000, speed_of_light=light)
    return record(AGREES, number, made)


# ---- properties


@given(facts, settings)
def test_every_reward_is_within_its_bounds_and_none_exactly_for_what_was_not_judged(
    found: RewardFacts, chosen: RewardSettings
) -> None:
    reward = reward_of_facts(found, chosen)
    if found.cheated:
        assert reward == chosen.cheating < chosen.no_code <= 0
    elif not found.judged:
        assert reward is None
    else:
        assert reward is not None
        assert 0 <= reward <= chosen.highest
        assert all(0 <= part <= 1 for part in msgspec.structs.astuple(parts_of(found, chosen)))


@given(facts, facts, settings)
def test_more_right_cases_a_higher_speed_and_a_nearer_limit_never_earn_less(
    first: RewardFacts, second: RewardFacts, chosen: RewardSettings
) -> None:
    def least(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else min(one, other)

    def most(one: float | None, other: float | None) -> float | None:
        return max((each for each in (one, other) if each is not None), default=None)

    low = RewardFacts(
        True,
        False,
        min(first.correct_share, second.correct_share),
        least(first.speedup_low, second.speedup_low),
        least(first.of_limit_percent, second.of_limit_percent),
    )
    high = RewardFacts(
        True,
        False,
        max(first.correct_share, second.correct_share),
        most(first.speedup_low, second.speedup_low),
        most(first.of_limit_percent, second.of_limit_percent),
    )
    below, above = reward_of_facts(low, chosen), reward_of_facts(high, chosen)
    assert below is not None
    assert above is not None
    assert below <= above + 1e-12


@given(shares.filter(lambda share: share < 1), speeds, percents, settings)
def test_a_wrong_kernel_never_earns_as_much_as_a_right_one(
    share: float, speed: float | None, percent: float | None, chosen: RewardSettings
) -> None:
    wrong = reward_of_facts(RewardFacts(True, False, share, speed, percent), chosen)
    right = reward_of_facts(RewardFacts(True, False, 1.0), chosen)
    assert wrong is not None
    assert right is not None
    assert wrong <= right
    assert wrong <= chosen.correctness_weight * share
    assert chosen.partial_credit or wrong == 0


@given(st.lists(st.sampled_from([AGREES, *WRONG, *EXCUSED, UNJUDGED, CHEATED]), max_size=12), settings)
def test_the_verdicts_of_records_decide_as_documented_in_any_order(
    verdicts: Sequence[Verdict], chosen: RewardSettings
) -> None:
    records = [record(verdict, number) for number, verdict in enumerate(verdicts)]
    reward = reward_of(records, chosen)
    assert reward == reward_of(Evaluation(RELU, tuple(reversed(records))), chosen)
    counted = [verdict for verdict in verdicts if verdict not in EXCUSED]
    if CHEATED in verdicts:
        assert reward == chosen.cheating
    elif not counted or UNJUDGED in counted:
        assert reward is None
    else:
        share = counted.count(AGREES) / len(counted)
        expected = share if chosen.partial_credit or share == 1 else 0.0
        assert reward == pytest.approx(chosen.correctness_weight * expected)


@given(st.floats(0.05, 20), st.floats(0.001, 0.3))
def test_of_a_measured_kernel_the_lower_end_of_the_interval_is_rewarded(ratio: float, noise: float) -> None:
    found = facts_of([timed(ratio, noise)])
    evaluation = Evaluation(RELU, (timed(ratio, noise),))
    assert found.correct_share == 1
    assert found.speedup_low == evaluation.speedup_low
    if found.speedup_low is not None:
        assert evaluation.speedup is not None
        assert found.speedup_low <= evaluation.speedup
        assert speedup(found) <= speedup(RewardFacts(True, False, 1.0, evaluation.speedup))
    if found.of_limit_percent is not None:
        assert 0 < limit(found) <= 1


# ---- examples


def test_noise_costs_and_never_pays() -> None:
    quiet, noisy = reward_of([timed(2.0, 0.001)]), reward_of([timed(2.0, 0.5)])
    assert quiet is not None
    assert noisy is not None
    assert noisy < quiet
    assert quiet == pytest.approx(0.3 + 0.7 * math.log(2 / 0.25) / math.log(4 / 0.25), abs=0.01)


def test_a_speed_above_the_highest_that_counts_earns_no_more() -> None:
    assert reward_of([timed(8.0, 0.001)]) == pytest.approx(1.0)
    assert reward_of([timed(4.2, 0.001)]) == pytest.approx(1.0)


def test_a_failure_of_the_machine_in_one_case_is_none_and_never_zero() -> None:
    assert reward_of([record(AGREES), record(UNJUDGED, 1)]) is None
    assert reward_of([record(WRONG[0]), record(UNJUDGED, 1)]) is None
    assert reward_of([]) is None
    assert reward_of([record(EXCUSED[0])]) is None
    assert reward_of([record(WRONG[0])]) == 0.0


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("correctness_weight", -1.0, "must be 0 or more"),
        ("speedup_weight", math.nan, "must be 0 or more"),
        ("slow_speedup", 4.0, "give no range"),
        ("fast_speedup", math.inf, "give no range"),
        ("no_code", 0.1, "must be 0 or less"),
        ("cheating", 0.0, "must be below no_code"),
    ],
)
def test_settings_that_make_no_sense_are_refused(field: str, value: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RewardSettings(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="all reward weights are 0"):
        RewardSettings(correctness_weight=0, speedup_weight=0)


def test_settings_travel_as_json() -> None:
    assert msgspec.convert(json.loads(msgspec.json.encode(DEFAULT)), RewardSettings) == DEFAULT
