"""Timing with a clock of numbers: how many rounds, in which order, and how many calls a block has."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from torchstone.sweeps.estimate import estimate
from torchstone.sweeps.timing import BUDGET_SECONDS, LEAST_CALLS, LEAST_ROUNDS, PRECISION, Call, CpuClock, take_samples


@dataclass
class FakeBlock:
    name: str
    calls: int


class FakeClock:
    """Takes times from a function, and notes in which order it was asked."""

    def __init__(self, time_ns: Callable[[str], float]) -> None:
        self._time_ns = time_ns
        self.orders: list[tuple[str, ...]] = []
        self.seconds = 0.0

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> FakeBlock:
        raise AssertionError("blocks are given")

    def take(self, blocks: Sequence[FakeBlock]) -> list[float]:
        self.orders.append(tuple(block.name for block in blocks))
        self.seconds += 0.01
        return [self._time_ns(block.name) for block in blocks]


def blocks(calls: int = 20) -> dict[str, FakeBlock]:
    return {name: FakeBlock(name, calls) for name in ("PyTorch", "CUDA", "Triton")}


def test_steady_times_need_no_more_than_the_least_rounds() -> None:
    clock = FakeClock({"PyTorch": 30.0, "CUDA": 10.0, "Triton": 20.0}.__getitem__)
    samples = take_samples(clock, blocks(), random.Random(1), now=lambda: clock.seconds)
    assert {name: len(taken) for name, taken in samples.items()} == dict.fromkeys(samples, LEAST_ROUNDS)
    assert samples["CUDA"] == [10.0] * LEAST_ROUNDS


def test_every_round_asks_for_every_implementation_in_an_order_that_changes() -> None:
    clock = FakeClock(lambda name: 10.0)
    take_samples(clock, blocks(), random.Random(1), now=lambda: clock.seconds)
    assert all(sorted(order) == ["CUDA", "PyTorch", "Triton"] for order in clock.orders)
    assert len(set(clock.orders)) > 1


def test_few_calls_in_a_block_mean_more_rounds() -> None:
    clock = FakeClock(lambda name: 10.0)
    samples = take_samples(clock, blocks(calls=4), random.Random(1), now=lambda: clock.seconds)
    assert len(samples["CUDA"]) * 4 >= LEAST_CALLS


def test_noisy_times_are_taken_until_they_are_precise() -> None:
    noise = random.Random(3)
    clock = FakeClock(lambda name: noise.gauss(1000, 60))
    samples = take_samples(clock, blocks(), random.Random(1), now=lambda: 0.0)
    assert len(samples["CUDA"]) > LEAST_ROUNDS
    assert all(estimate(taken).relative_half_width <= PRECISION for taken in samples.values())


def test_times_that_never_become_precise_end_with_the_budget() -> None:
    noise = random.Random(3)
    clock = FakeClock(lambda name: noise.uniform(1, 10000))
    take_samples(clock, blocks(), random.Random(1), now=lambda: clock.seconds)
    assert clock.seconds == pytest.approx(3 * BUDGET_SECONDS, abs=0.02)


def test_on_a_cpu_a_block_goes_on_with_the_next_copy() -> None:
    seen: list[int] = []
    calls = [lambda place=place: seen.append(place) for place in range(7)]
    clock = CpuClock()
    block = clock.prepare(calls, 1.0)
    del seen[:]
    times = [clock.take([block])[0] for _ in range(3)]
    assert all(time_ns > 0 for time_ns in times)
    assert seen == [number % 7 for number in range(3 * block.calls)]
