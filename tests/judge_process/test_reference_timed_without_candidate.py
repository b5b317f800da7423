"""The reference is timed alone only when the candidate has surely ended, and only on quiet cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchstone import schema
from torchstone.judge_process.reference_timed_without_candidate import (
    Beforehand,
    LoadedTooEarlyError,
    _rounds,
    with_reference_alone,
)
from torchstone.measuring import timing
from torchstone.measuring.long_block_experiment import Times

LONG, ROUNDS = 8, 7


def measurement() -> schema.Measurement:
    """A candidate that looks twice as fast as the reference."""
    times: dict[schema.Party, int] = {"candidate": 1_000_000, "reference": 2_000_000, "shim": 20_000}
    blocks = [
        schema.Block(number, party, calls, calls * ns + number, calls * ns)
        for number in range(ROUNDS)
        for calls in (1, LONG)
        for party, ns in times.items()
    ]
    return schema.Measurement("test", tuple(blocks), 0, 0, 1, LONG, 0)


class Calls:
    way: schema.Way = "called"

    def prepare(self, lengths: tuple[int, ...]) -> None: ...

    def renew(self) -> None: ...

    def run(self, calls: int) -> Times:
        return Times(1000, 1000)


class FakeIdleCores:
    """Idle cores by plan: whether the wait succeeds, and whether they stay idle at each look."""

    def __init__(self, comes: bool, stays: list[bool]) -> None:
        self._comes, self._stays = comes, stays

    def wait_until_idle(self) -> bool:
        return self._comes

    def are_idle(self) -> bool:
        return self._stays.pop(0)


def rounds(comes: bool, stays: list[bool]) -> list[schema.Block] | None:
    parties: Any = {"reference": Calls(), "shim": Calls()}
    quiet: Any = FakeIdleCores(comes, stays)
    return _rounds(measurement(), parties, quiet)


def test_a_candidate_that_has_not_ended_gets_no_speed() -> None:
    session: Any = SimpleNamespace(dismiss=lambda: False)
    nobody: Any = None
    assert timing(measurement()).speedup.outcome == "faster"  # type: ignore[union-attr]
    found = with_reference_alone(session, nobody, nobody, measurement(), Beforehand())
    without = timing(found)
    assert without.speedup is None
    assert "had not ended" in without.unresolved


def test_a_fast_candidate_that_was_there_before_its_reference_was_timed_has_to_come_again() -> None:
    nobody: Any = None
    with pytest.raises(LoadedTooEarlyError):
        with_reference_alone(nobody, nobody, nobody, measurement(), Beforehand(already_loaded=True))


def test_nothing_is_timed_on_cores_that_do_not_become_quiet() -> None:
    assert rounds(comes=False, stays=[]) is None


def test_as_many_rounds_as_in_the_contest_on_quiet_cores() -> None:
    blocks = rounds(comes=True, stays=[True] * 3)
    assert blocks is not None
    assert sorted({block.round for block in blocks}) == list(range(ROUNDS, 2 * ROUNDS))


def test_rounds_after_which_the_quiet_was_gone_are_taken_again() -> None:
    blocks = rounds(comes=True, stays=[True, False, True, False, False, True])
    assert blocks is not None
    assert len(blocks) == 2 * ROUNDS


def test_but_not_for_ever() -> None:
    assert rounds(comes=True, stays=[True, False, False, False]) is None
