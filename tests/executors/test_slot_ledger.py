"""How runs share the slots of a cluster."""

from __future__ import annotations

import pytest

from torchstone.executors import slot_ledger
from torchstone.executors.slot_ledger import SlotLedger

SLOTS = ["a/0", "a/1", "b/0", "b/1"]


def test_a_run_alone_has_every_slot_that_it_has_work_for() -> None:
    ledger = SlotLedger()
    assert ledger.poll("one", SLOTS, [], 2) == ["a/0", "a/1"]
    assert ledger.poll("one", SLOTS, ["a/0", "a/1"], 9) == SLOTS


def test_a_second_run_gets_half_as_soon_as_the_first_lets_go() -> None:
    ledger = SlotLedger()
    assert ledger.poll("one", SLOTS, [], 9) == SLOTS
    assert ledger.poll("two", SLOTS, [], 9) == [], "nothing is taken from under a job"
    assert ledger.poll("one", SLOTS, SLOTS, 9) == SLOTS[:2], "told to let go"
    assert ledger.poll("two", SLOTS, [], 9) == [], "it has not yet"
    assert ledger.poll("one", SLOTS, SLOTS[:2], 9) == SLOTS[:2]
    assert ledger.poll("two", SLOTS, [], 9) == SLOTS[2:]


def test_what_a_run_does_not_want_the_others_may_use() -> None:
    ledger = SlotLedger()
    assert ledger.poll("small", SLOTS, [], 1) == ["a/0"]
    assert ledger.poll("large", SLOTS, [], 9) == ["a/1", "b/0", "b/1"]


def test_no_slot_has_two_holders_and_no_run_goes_without() -> None:
    ledger = SlotLedger()
    held: dict[str, list[str]] = {name: [] for name in ("one", "two", "three")}
    for _ in range(6):
        for name in held:
            held[name] = ledger.poll(name, SLOTS, held[name], 9)
            taken = [slot for slots in held.values() for slot in slots]
            assert len(taken) == len(set(taken))
    assert all(held.values())


def test_a_lost_ledger_learns_what_is_held() -> None:
    ledger = SlotLedger()
    assert ledger.poll("one", SLOTS, SLOTS[:2], 2) == SLOTS[:2]
    assert ledger.poll("two", SLOTS, [], 9) == SLOTS[2:]


def test_a_run_that_is_silent_for_long_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = SlotLedger()
    ledger.poll("one", SLOTS, [], 9)
    monkeypatch.setattr(slot_ledger, "_SILENT_SECONDS", -1.0)
    assert ledger.poll("two", SLOTS, [], 9) == SLOTS
