"""Which clock times the sides of a pair on CUDA. The device is simulated: two streams that are busy until a moment."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest
import torch

from torchstone.benchmarks import BenchmarkConfig
from torchstone.executors.devices import Device
from torchstone.harness import BaseBenchmark, compare_benchmarks, pair_session
from torchstone.harness.results import Comparison

CALL_MS = 2.0
QUEUE_MS = 20.0


class Stream:
    """Work that is queued on the device. The queue is short: who finds it full waits."""

    busy_until = 0.0

    def add(self, milliseconds: float) -> None:
        time.sleep(max(0.0, self.busy_until - time.perf_counter() - QUEUE_MS / 1e3))
        self.busy_until = max(time.perf_counter(), self.busy_until) + milliseconds / 1e3


MAIN, OTHER = Stream(), Stream()


class Event:
    """Of the main stream."""

    def __init__(self, enable_timing: bool) -> None:
        self.seconds = 0.0

    def record(self) -> None:
        self.seconds = max(time.perf_counter(), MAIN.busy_until)

    def elapsed_time(self, end: Event) -> float:
        return (end.seconds - self.seconds) * 1e3


def synchronize() -> None:
    time.sleep(max(0.0, max(MAIN.busy_until, OTHER.busy_until) - time.perf_counter()))


@pytest.fixture(autouse=True)
def _simulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    MAIN.busy_until = OTHER.busy_until = 0.0
    monkeypatch.setattr(pair_session, "_device", lambda label: Device("cuda", label, "simulated"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)


def compared(*streams: Stream, fits_together: bool = True, modes: tuple[str, str] = ("custom", "custom")) -> Comparison:
    class Works(BaseBenchmark):
        alive: ClassVar[set[Any]] = set()

        def __init__(self, stream: Stream, mode: str) -> None:
            self.stream, self.mode = stream, mode

        def setup(self) -> None:
            if self.alive and not fits_together:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.alive.add(self)

        def benchmark_fn(self) -> None:
            self.stream.add(CALL_MS)

        def teardown(self) -> None:
            self.alive.discard(self)

        def get_config(self) -> dict[str, str]:
            self.alive.clear()  # sides are loaded when no other one is left
            return {"mode": self.mode}

    sides = [Works(stream, mode) for stream, mode in zip(streams, modes, strict=True)]
    config = BenchmarkConfig(iterations=12, warmup=4, min_run_time_ms=60.0)
    return compare_benchmarks(*sides, config=config, device="cuda:0")


def clocks(found: Comparison) -> tuple[str, str]:
    assert found.baseline.succeeded, found.baseline
    assert found.optimized.succeeded, found.optimized
    return found.baseline.clock, found.optimized.clock


def test_events_count_unless_a_side_works_on_another_stream() -> None:
    assert clocks(compared(MAIN, MAIN)) == ("events", "events")
    found = compared(MAIN, OTHER)
    assert clocks(found) == ("wall", "wall")
    assert found.speedup == pytest.approx(1.0, abs=0.3)


def test_torchs_timer_uses_the_hosts_clock() -> None:
    found = compared(MAIN, MAIN, modes=("pytorch", "pytorch"))
    assert clocks(found) == ("wall", "wall")
    assert found.baseline.mode == "pytorch"


@pytest.mark.parametrize("streams", [(MAIN, OTHER), (OTHER, MAIN)])
def test_sides_in_sequence_are_timed_by_the_same_clock(streams: tuple[Stream, Stream]) -> None:
    found = compared(*streams, fits_together=False)
    assert found.taken == "in sequence"
    assert clocks(found) == ("wall", "wall")
    assert found.speedup == pytest.approx(1.0, abs=0.3), "events would see nothing of one side"
    names = ("baseline", "optimized")
    if streams[0] is MAIN:
        assert found.notes[-1] == "the baseline side was timed again, by the wall clock, as the other side has to be"
    assert {note for side in names for note in getattr(found, side).notes if "by the wall clock" in note}


def test_sides_in_sequence_use_the_same_timer() -> None:
    found = compared(MAIN, MAIN, fits_together=False, modes=("pytorch", "custom"))
    assert found.taken == "in sequence"
    assert (found.baseline.mode, found.optimized.mode) == ("custom", "custom")
    assert "the sides ask for different timers" in found.baseline.notes[-1]
