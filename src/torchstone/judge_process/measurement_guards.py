"""Guards over a finished measurement: each detects one way in which its times may be false.

Most of what keeps a time honest is in the way it is taken:

- new values for every call, and every result verified;
- a worker that stands still whenever the clock does not run, and the judge's own clock;
- buffers filled with garbage and surrounded by bands;
- a speed that counts only as far as single calls confirm it.

These guards check the rest: whether the figures fit together. Each docstring says what the guard proves and what it
does not. An honest kernel on a noisy machine must never be accused. So each guard demands several times the noise
that the reference itself shows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from torchstone.measuring.device_state import BY_THE_HOST
from torchstone.schema import Block, Cheated, Measurement, Party

Floats = NDArray[np.float64]


class DeviceBusyError(Exception):
    """Somebody else uses the device: a time taken now would mean nothing."""


class Figures:
    """A measurement's long blocks as arrays over rounds."""

    def __init__(self, measurement: Measurement) -> None:
        ways = {block.way for block in measurement.blocks if block.party == "candidate"}
        way = "captured" if "captured" in ways else "called"
        blocks = [block for block in measurement.blocks if block.way == way]
        self.calls = max(block.calls for block in blocks)
        self._blocks = [block for block in blocks if block.calls == self.calls]

    def seen_ns(self, party: Party) -> Floats:
        """Per call, with the shim's cost taken off."""
        return (self._of(party, lambda block: block.elapsed_ns) - self._of("shim", lambda b: b.elapsed_ns)) / self.calls

    def unexplained_ns(self, party: Party) -> Floats:
        """Per block, what the judge saw beyond what the worker claims."""
        return self._of(party, lambda block: block.elapsed_ns - block.claimed_ns)

    def _of(self, party: Party, figure: Callable[[Block], int]) -> Floats:
        return np.array([figure(block) for block in self._blocks if block.party == party], dtype=np.float64)


def centre_and_doubt(values: Floats) -> tuple[float, float]:
    """Median, and three robust standard errors of it."""
    centre = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - centre)))
    return centre, 3.0 * 1.2533 * spread / max(1.0, float(np.sqrt(values.size)))


class Guard(Protocol):
    """Looks at a measurement; says what it proves, or nothing."""

    def examine(self, measurement: Measurement) -> Cheated | None: ...


class QuiescenceGuard:
    """Proves that the candidate kept the device busy between its calls: work that began before the clock did.

    The judge asks the device for almost nothing before each block of the candidate. If that takes long, the candidate
    is removed and the device is asked again, for a while. If it is quiet now, the candidate was the cause. If it is
    still busy, or now and then, another program uses it: then nothing can be measured, and nobody is blamed.

    Does not prove anything about work that alternates quickly enough. Not needed on the CPU, where the candidate
    stands still.
    """

    name = "quiescence"
    _BUSY_NS = 500_000.0
    """A quiet device answers in some tens of microseconds; one that another process keeps busy, after a time slice."""
    _QUIETER = 4.0
    _PERCENTILE = 90
    """Of the answers without the candidate, so that single late ones do not hide what it did."""

    def __init__(self, latencies_ns: Sequence[int], without_candidate_ns: Callable[[], Iterable[int]]) -> None:
        """``without_candidate_ns`` removes the candidate and asks the device again and again."""
        self._latencies_ns, self._without_candidate_ns = latencies_ns, without_candidate_ns

    def examine(self, measurement: Measurement) -> Cheated | None:
        before = statistics.median(self._latencies_ns) if self._latencies_ns else 0.0
        if before < self._BUSY_NS:
            return None
        after = float(np.percentile(list(self._without_candidate_ns()), self._PERCENTILE))
        if after >= before / self._QUIETER:
            raise DeviceBusyError("another process keeps the device busy; nothing can be measured on it")
        turns = f"{before / 1e3:.0f} µs to get a turn, {after / 1e3:.0f} µs without it"
        return Cheated("measure", self.name, f"the device was busy between calls: {turns}")


class ClockGuard:
    """Proves that the clock in the candidate's process was changed.

    The worker reports how long its calls took by its own clock. That figure is never used as a time. It is false if
    the judge saw far more time pass, block after block, and far more than in the reference's worker. A busy machine
    also puts such gaps into blocks, into the reference's as well. So rounds in which the host was disturbed do not
    count. Of the others, the candidate's smaller gaps must exceed several of the reference's larger ones.

    Does not prove anything about work done outside the calls.
    """

    name = "clock"
    _FACTOR = 3.0
    _LEAST_NS = 500_000.0
    _SMALLER, _LARGER = 25, 75
    """Percentiles."""
    _LEAST_ROUNDS = 4

    def examine(self, measurement: Measurement) -> Cheated | None:
        quiet = _without_rounds_of_the_host(measurement)
        if len({block.round for block in quiet.blocks if block.way in ("called", "captured")}) < self._LEAST_ROUNDS:
            return None
        figures = Figures(quiet)
        smaller = float(np.percentile(figures.unexplained_ns("candidate"), self._SMALLER))
        larger = float(np.percentile(figures.unexplained_ns("reference"), self._LARGER))
        if smaller <= self._FACTOR * max(larger, 0.0) + self._LEAST_NS:
            return None
        message = (
            f"{smaller / 1e3:.0f} µs of a block do not appear on the worker's clock "
            f"(in the reference's worker: {larger / 1e3:.0f} µs)"
        )
        return Cheated("measure", self.name, message)


def _without_rounds_of_the_host(measurement: Measurement) -> Measurement:
    """A candidate that waited for a core while the clock ran is not accused of the time that passed."""
    disturbed = {item.round for item in measurement.disturbances if not set(BY_THE_HOST).isdisjoint(item.reasons)}
    blocks = tuple(block for block in measurement.blocks if block.round not in disturbed)
    return msgspec.structs.replace(measurement, blocks=blocks)


class FloorGuard:
    """Proves that a result appeared faster than the device can write it.

    The floor is the bytes that must be written over twice the best bandwidth that this device was seen to reach, its
    caches included. Only where the reference itself stays above it: if not, the figures are too coarse to accuse
    anyone. Does not prove anything about kernels that are slower than that and still too fast for their arithmetic.
    """

    name = "speed-of-light"

    def __init__(self, written_bytes: int, peak_bytes_per_second: float) -> None:
        self._floor_ns = written_bytes / (2.0 * peak_bytes_per_second) * 1e9

    def examine(self, measurement: Measurement) -> Cheated | None:
        figures = Figures(measurement)
        seen, doubt = centre_and_doubt(figures.seen_ns("candidate"))
        usual, usual_doubt = centre_and_doubt(figures.seen_ns("reference"))
        if seen + doubt >= self._floor_ns or usual - usual_doubt < 2 * self._floor_ns:
            return None
        floor = f"this device needs at least {self._floor_ns / 1e3:.2f} µs to write the result"
        return Cheated("measure", self.name, f"{seen / 1e3:.2f} µs a call; {floor}")


def peak_bandwidth(device: torch.device) -> float:
    """Bytes per second of the fastest copy that this device makes, over sizes from its first cache to its memory."""
    best = 0.0
    for exponent in (16, 18, 20, 22, 24):
        source = torch.zeros(1 << exponent, dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        calls = max(4, (1 << 24) >> exponent)
        for _ in range(3):
            _synchronize(device)
            began = time.perf_counter()
            for _ in range(calls):
                target.copy_(source)
            _synchronize(device)
            best = max(best, calls * (1 << exponent) / (time.perf_counter() - began))
    return best


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
