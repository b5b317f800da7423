"""Guards over a finished measurement: each detects one way in which its times may be false.

Most of what keeps a time honest is in the way it is taken:

- new values for every call, and every result verified;
- a worker that is paused whenever the clock does not run, and the judge's own clock;
- buffers filled with garbage and surrounded by bands;
- a speedup that counts only as far as single calls confirm it.

These guards check whether the measured times are consistent. Each docstring says what the guard proves and what it does
not. An honest kernel on a noisy machine must never be accused. So a guard requires several times the noise that the
reference itself shows.
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
    """Another program uses the device: times that are measured now would be wrong."""


class Figures:
    """A measurement's long blocks as arrays over rounds."""

    def __init__(self, measurement: Measurement) -> None:
        ways = {block.way for block in measurement.blocks if block.party == "candidate"}
        way = "captured" if "captured" in ways else "called"
        blocks = [block for block in measurement.blocks if block.way == way]
        self.calls = max(block.calls for block in blocks)
        self._blocks = [block for block in blocks if block.calls == self.calls]

    def seen_ns(self, party: Party) -> Floats:
        """Time per call by the judge's clock, less the shim's, for each block."""
        return (
            self._figures_of(party, lambda block: block.elapsed_ns) - self._figures_of("shim", lambda b: b.elapsed_ns)
        ) / self.calls

    def unexplained_ns(self, party: Party) -> Floats:
        """For each block the time by the judge's clock less the time by the worker's clock."""
        return self._figures_of(party, lambda block: block.elapsed_ns - block.claimed_ns)

    def _figures_of(self, party: Party, figure: Callable[[Block], int]) -> Floats:
        return np.array([figure(block) for block in self._blocks if block.party == party], dtype=np.float64)


def centre_and_doubt(values: Floats) -> tuple[float, float]:
    """The median, and three of its standard errors, from the median absolute deviation."""
    centre = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - centre)))
    return centre, 3.0 * 1.2533 * spread / max(1.0, float(np.sqrt(values.size)))


class Guard(Protocol):
    """Checks a measurement. Returns a verdict if it proves cheating, else None."""

    def examine(self, measurement: Measurement) -> Cheated | None: ...


class QuiescenceGuard:
    """Proves that the candidate kept the device busy between its calls: work that began before the clock did.

    Before each block of the candidate the judge times a tiny copy on the device. If that takes long, the candidate is
    removed and the copy is timed again for a while. If it is quick now, the candidate was the cause. If it is still
    slow, or now and then, another program uses the device: then DeviceBusyError is raised, not a verdict.

    Does not prove anything about work that alternates quickly enough. Not needed on the CPU, where the candidate is
    paused.
    """

    name = "quiescence"
    _BUSY_LATENCY_NS = 500_000.0
    """Latency of a busy device. An idle one answers in some tens of microseconds, a busy one after a time slice."""
    _LATENCY_FALL = 4.0
    """Factor by which the latency must fall without the candidate."""
    _LATENCY_PERCENTILE = 90
    """Percentile of the latencies without the candidate that counts: single slow ones do not hide the candidate."""

    def __init__(self, latencies_ns: Sequence[int], without_candidate_ns: Callable[[], Iterable[int]]) -> None:
        """``without_candidate_ns`` removes the candidate and measures latencies again."""
        self._latencies_ns, self._without_candidate_ns = latencies_ns, without_candidate_ns

    def examine(self, measurement: Measurement) -> Cheated | None:
        before = statistics.median(self._latencies_ns) if self._latencies_ns else 0.0
        if before < self._BUSY_LATENCY_NS:
            return None
        after = float(np.percentile(list(self._without_candidate_ns()), self._LATENCY_PERCENTILE))
        if after >= before / self._LATENCY_FALL:
            raise DeviceBusyError("another process keeps the device busy; nothing can be measured on it")
        latencies = f"{before / 1e3:.0f} µs until it was free, {after / 1e3:.0f} µs without the candidate"
        return Cheated("measure", self.name, f"the device was busy between calls: {latencies}")


class ClockGuard:
    """Proves that the clock in the candidate's process was changed.

    The worker reports how long its calls took by its own clock. That time is never a result. It is false if the judge
    measured far more time in most blocks, and far more than for the reference's worker. A busy machine also causes such
    gaps, in the reference's blocks as well. So rounds in which the host was disturbed do not count. In the others, the
    candidate's smaller gaps must exceed a multiple of the reference's larger ones.

    Does not prove anything about work done outside the calls.
    """

    name = "clock"
    _LEAST_GAP_RATIO = 3.0
    """The candidate's gap must exceed this multiple of the reference's gap, plus the least gap."""
    _LEAST_GAP_NS = 500_000.0
    _CANDIDATE_PERCENTILE, _REFERENCE_PERCENTILE = 25, 75
    """Percentiles of the candidate's gaps and of the reference's gaps that are compared."""
    _LEAST_ROUNDS = 4

    def examine(self, measurement: Measurement) -> Cheated | None:
        quiet = _without_rounds_of_the_host(measurement)
        if len({block.round for block in quiet.blocks if block.way in ("called", "captured")}) < self._LEAST_ROUNDS:
            return None
        figures = Figures(quiet)
        candidate_gap_ns = float(np.percentile(figures.unexplained_ns("candidate"), self._CANDIDATE_PERCENTILE))
        reference_gap_ns = float(np.percentile(figures.unexplained_ns("reference"), self._REFERENCE_PERCENTILE))
        if candidate_gap_ns <= self._LEAST_GAP_RATIO * max(reference_gap_ns, 0.0) + self._LEAST_GAP_NS:
            return None
        message = (
            f"{candidate_gap_ns / 1e3:.0f} µs of a block do not appear on the worker's clock "
            f"(in the reference's worker: {reference_gap_ns / 1e3:.0f} µs)"
        )
        return Cheated("measure", self.name, message)


def _without_rounds_of_the_host(measurement: Measurement) -> Measurement:
    """The measurement without rounds in which the host was disturbed: a candidate may have waited for a core there."""
    disturbed = {item.round for item in measurement.disturbances if not set(BY_THE_HOST).isdisjoint(item.reasons)}
    blocks = tuple(block for block in measurement.blocks if block.round not in disturbed)
    return msgspec.structs.replace(measurement, blocks=blocks)


class FloorGuard:
    """Proves that a result appeared faster than the device can write it.

    The floor is the bytes that must be written, divided by twice the best bandwidth that was measured on this device,
    its caches included. The reference itself must take at least twice the floor: else the times are too coarse to
    accuse anyone. Does not prove anything about kernels that are slower than that and still too fast for their
    arithmetic.
    """

    name = "speed-of-light"

    def __init__(self, written_bytes: int, peak_bytes_per_second: float) -> None:
        self._floor_ns = written_bytes / (2.0 * peak_bytes_per_second) * 1e9

    def examine(self, measurement: Measurement) -> Cheated | None:
        figures = Figures(measurement)
        candidate_ns, candidate_doubt_ns = centre_and_doubt(figures.seen_ns("candidate"))
        reference_ns, reference_doubt_ns = centre_and_doubt(figures.seen_ns("reference"))
        if (
            candidate_ns + candidate_doubt_ns >= self._floor_ns
            or reference_ns - reference_doubt_ns < 2 * self._floor_ns
        ):
            return None
        floor = f"this device needs at least {self._floor_ns / 1e3:.2f} µs to write the result"
        return Cheated("measure", self.name, f"{candidate_ns / 1e3:.2f} µs a call; {floor}")


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
