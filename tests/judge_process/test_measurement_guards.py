"""What the guards over a measurement accuse, and what they leave alone."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.judge_process.measurement_guards import (
    ClockGuard,
    DeviceBusyError,
    Figures,
    FloorGuard,
    QuiescenceGuard,
    centre_and_doubt,
)
from torchstone.schema import Block, Disturbance, Measurement, Party

LONG = 32


def measurement(
    candidate_us: tuple[float, float],
    reference_us: tuple[float, float],
    noise: float = 0.0,
    claim: float = 1.0,
    seed: int = 1,
) -> Measurement:
    """Blocks of parties that take (alone, among others) microseconds a call, beside a shim of 5."""
    chance = random.Random(seed)
    times: dict[Party, tuple[float, float]] = {"candidate": candidate_us, "reference": reference_us, "shim": (0, 0)}
    blocks = []
    for number in range(9):
        for party, (alone, batched) in times.items():
            for calls in (1, LONG):
                body = alone if calls == 1 else alone + (calls - 1) * batched
                # What disturbs the calls is on both clocks, what disturbs the round trip on the judge's alone.
                claimed = 1e3 * (5 * calls + body) * (1 + noise * chance.gauss(0, 1) ** 2)
                elapsed = claimed + 80e3 * (1 + 10 * noise * chance.gauss(0, 1) ** 2)
                blocks.append(Block(number, party, calls, int(elapsed), int(claimed * claim)))
    return Measurement("blocks-less-shim", tuple(blocks), 0, 1, 1, LONG, 1 << 20)


def test_figures_take_the_shim_off() -> None:
    figures = Figures(measurement((20, 20), (30, 30), claim=0.5))
    assert np.median(figures.seen_ns("candidate")) == pytest.approx(20_000, rel=0.01)
    assert np.median(figures.seen_ns("reference")) == pytest.approx(30_000, rel=0.01)
    assert np.median(figures.unexplained_ns("shim")) == pytest.approx(1e3 * (80 + 5 * LONG / 2), rel=0.01)


def test_rounds_of_single_calls_alone_do_not_disturb() -> None:
    usual = measurement((20, 20), (30, 30))
    single = tuple(Block(100, party, 1, 10**6, 10**6) for party in ("candidate", "reference", "shim"))
    more = msgspec.structs.replace(usual, blocks=usual.blocks + single)
    assert np.array_equal(Figures(more).seen_ns("candidate"), Figures(usual).seen_ns("candidate"))


def tampered(honest: Measurement, share: float) -> Measurement:
    """The same with a candidate that admits to a share of its time only."""
    blocks = tuple(
        msgspec.structs.replace(block, claimed_ns=int(block.claimed_ns * share))
        if block.party == "candidate"
        else block
        for block in honest.blocks
    )
    return msgspec.structs.replace(honest, blocks=blocks)


def test_a_clock_that_stands_still_is_seen() -> None:
    proof = ClockGuard().examine(tampered(measurement((50, 50), (50, 50)), 0.0))
    assert proof is not None
    assert proof.guard == "clock"


def test_nobody_is_accused_of_what_the_host_did() -> None:
    seen = tampered(measurement((50, 50), (50, 50)), 0.0)
    rounds = {block.round for block in seen.blocks}
    waited = tuple(Disturbance(number, ("waited for a core",)) for number in rounds)
    assert ClockGuard().examine(msgspec.structs.replace(seen, disturbances=waited)) is None
    chained = [msgspec.structs.replace(block, way="chained", round=99 + block.round) for block in seen.blocks]
    confirmed = msgspec.structs.replace(seen, blocks=(*seen.blocks, *chained), disturbances=waited)
    assert ClockGuard().examine(confirmed) is None, "chains are no blocks that decide"
    capped = tuple(Disturbance(number, ("power cap",)) for number in rounds)
    assert ClockGuard().examine(msgspec.structs.replace(seen, disturbances=capped)) is not None


def test_a_result_faster_than_memory_is_seen() -> None:
    guard = FloorGuard(written_bytes=64 << 20, peak_bytes_per_second=50e9)
    assert guard.examine(measurement((900, 100), (9000, 9000))) is not None
    assert guard.examine(measurement((3000, 3000), (9000, 9000))) is None
    assert guard.examine(measurement((100, 100), (100, 100))) is None, "the reference too is below: figures too coarse"


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    noise=st.floats(0, 0.5),
    reference=st.floats(0.5, 5000),
    speedup=st.floats(0.05, 20),
    warm_up=st.floats(1, 2),
)
def test_honest_kernels_are_never_accused(
    seed: int, noise: float, reference: float, speedup: float, warm_up: float
) -> None:
    """Whatever the noise, and however slow a call is alone."""
    candidate = reference / speedup
    honest = measurement((candidate * warm_up, candidate), (reference * warm_up, reference), noise, seed=seed)
    assert ClockGuard().examine(honest) is None


def test_doubt_shrinks_with_rounds_and_ignores_outliers() -> None:
    quiet = np.array([10.0, 11, 9, 10, 10, 11, 9, 10, 1000])
    centre, doubt = centre_and_doubt(quiet)
    assert centre == 10
    assert doubt < 5
    assert centre_and_doubt(np.tile(quiet, 16))[1] < doubt


BUSY_NS, QUIET_NS = 1_400_000, 20_000


def test_a_device_that_is_quiet_once_the_candidate_is_gone_was_kept_busy_by_it() -> None:
    late_answers = [QUIET_NS] * 39 + [BUSY_NS] * 2  # the system's own, now and then
    found = QuiescenceGuard([BUSY_NS] * 5, lambda: late_answers).examine(measurement((30, 10), (30, 10)))
    assert found is not None
    assert found.guard == "quiescence"


def test_a_program_that_uses_the_device_in_bursts_is_not_the_candidates_doing() -> None:
    bursts = [QUIET_NS] * 9 + [BUSY_NS] * 6
    with pytest.raises(DeviceBusyError):
        QuiescenceGuard([BUSY_NS] * 5, lambda: bursts).examine(measurement((30, 10), (30, 10)))


def test_a_quiet_device_is_not_asked_without_the_candidate() -> None:
    def not_asked() -> list[int]:
        raise AssertionError

    assert QuiescenceGuard([QUIET_NS] * 5, not_asked).examine(measurement((30, 10), (30, 10))) is None
