"""The distance to the limit: arithmetic that never flatters and never clips."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.measuring import limit_of, timing
from torchstone.measuring.speed_of_light import attainment, has_limit
from torchstone.schema import Block, Measurement, Party, SpeedOfLight, decode, encode

RELU = SpeedOfLight(1000, 1000, bytes_per_second=1e9, latency_ns=50, flops=250, flops_per_second=1e12, dtype="float32")


def test_the_slowest_of_moving_calculating_and_calling_is_the_limit() -> None:
    assert limit_of(RELU) == (2000, "memory")
    assert limit_of(msgspec.structs.replace(RELU, flops=10**7)) == (10_000, "compute")
    assert limit_of(msgspec.structs.replace(RELU, latency_ns=3000)) == (3000, "latency")
    assert limit_of(msgspec.structs.replace(RELU, flops=10**7, flops_per_second=None)) == (2000, "memory")


def test_rates_are_those_of_the_work_that_must_be_done() -> None:
    reached = attainment(RELU, candidate_ns=4000, reference_ns=8000)
    assert (reached.candidate_percent, reached.reference_percent) == (50, 25)
    assert reached.candidate_bytes_per_second == pytest.approx(0.5e9)
    assert reached.candidate_flops_per_second == pytest.approx(62.5e6)
    assert attainment(msgspec.structs.replace(RELU, flops=0), 4000, 8000).candidate_flops_per_second is None


def test_more_than_a_hundred_percent_is_told() -> None:
    reached = attainment(RELU, candidate_ns=1000, reference_ns=4000)
    assert reached.candidate_percent == 200
    assert reached.over_limit


lights = st.builds(
    SpeedOfLight,
    read_bytes=st.integers(0, 10**9),
    written_bytes=st.integers(0, 10**9),
    bytes_per_second=st.floats(1e8, 1e13),
    latency_ns=st.floats(1, 1e5),
    flops=st.integers(0, 10**12),
    flops_per_second=st.none() | st.floats(1e8, 1e15),
)
times = st.floats(1, 1e9)


@given(lights, times, times)
def test_a_slower_kernel_is_never_closer_to_the_limit(light: SpeedOfLight, one: float, other: float) -> None:
    fast, slow = sorted((one, other))
    near, far = (attainment(light, taken, taken) for taken in (fast, slow))
    assert near.candidate_percent >= far.candidate_percent > 0
    assert near.over_limit or not far.over_limit


@given(lights, st.floats(1, 100))
def test_more_work_or_a_slower_device_only_raises_the_limit(light: SpeedOfLight, factor: float) -> None:
    more = msgspec.structs.replace(light, read_bytes=int(light.read_bytes * factor))
    slower = msgspec.structs.replace(light, bytes_per_second=light.bytes_per_second / factor)
    assert limit_of(more)[0] >= limit_of(light)[0]
    assert limit_of(slower)[0] >= limit_of(light)[0]


def measurement(candidate_ns: int, alone_ns: int, light: SpeedOfLight | None) -> Measurement:
    """Blocks of 24 calls, and single calls that may take the candidate another time; the reference takes 10 µs."""
    parties: dict[Party, tuple[int, int]] = {
        "candidate": (candidate_ns, alone_ns),
        "reference": (10_000, 10_000),
        "shim": (0, 0),
    }
    blocks = tuple(
        Block(number, party, calls, 20_000 + calls * (1000 + (among if calls > 1 else alone)), calls * among)
        for number in range(20)
        for party, (among, alone) in parties.items()
        for calls in (1, 24)
    )
    return Measurement("blocks-less-shim", blocks, 1, 2, 1, 24, 32, speed_of_light=light)


def test_a_timing_tells_how_far_both_parties_are_from_the_limit() -> None:
    reached = timing(measurement(5000, 5000, RELU)).attainment
    assert reached is not None
    assert reached.candidate_percent == pytest.approx(40)
    assert reached.reference_percent == pytest.approx(20)


def test_what_was_batched_is_held_to_what_single_calls_take() -> None:
    found = timing(measurement(1000, 10_000, RELU))
    assert found.speedup is None or found.speedup.ratio < 1.5
    assert found.attainment is None or found.attainment.candidate_percent < 30


def test_without_a_limit_or_a_resolved_time_nothing_is_told() -> None:
    assert timing(measurement(5000, 5000, None)).attainment is None
    assert timing(measurement(1, 1, RELU)).attainment is None


def test_records_from_before_there_were_limits_are_still_read() -> None:
    old = msgspec.json.decode(encode(measurement(5000, 5000, None)))
    del old["speed_of_light"]
    assert decode(encode(old), Measurement).speed_of_light is None


@pytest.mark.parametrize(
    ("light", "known"),
    [
        (RELU, True),
        (msgspec.structs.replace(RELU, flops_counted="unknown"), False),
        (msgspec.structs.replace(RELU, flops_counted="formula"), True),
        (msgspec.structs.replace(RELU, flops_counted="formula", flops_per_second=None), False),
        (msgspec.structs.replace(RELU, flops_counted="none", flops_per_second=None), True),
    ],
)
def test_there_is_no_limit_where_the_arithmetic_decides_and_is_not_known(light: SpeedOfLight, known: bool) -> None:
    assert has_limit(light) == known
    assert (timing(measurement(5000, 5000, light)).attainment is not None) == known
