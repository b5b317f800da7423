"""What a job reserves of a device's memory: before its lane, more only if that is free, and all of it in need."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from torchstone.judge_process.memory_reservation import JobMemory, MoreMemoryNeededError
from torchstone.processes.memory_ledger import device_ledger

GIB = 1 << 30
TOTAL = 64 * GIB
CAPACITY = 56 * GIB


class PretendedMemory:
    """A device of 64 GiB."""

    def free_bytes(self) -> int:
        return TOTAL

    def own_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return TOTAL


class Scene:
    """Two judges and a reader of problems on one device. A second process is played by another ledger object."""

    def __init__(self, folder: Path) -> None:
        self.ledger = device_ledger("device", TOTAL)
        self.ledger._folder, self.ledger._path = folder, folder / "device.memory"
        self.emptied = 0
        self.one, self.other = self.judge(), self.judge()

    def judge(self) -> JobMemory:
        return JobMemory(self.ledger, PretendedMemory(), self._empty)

    def _empty(self) -> None:
        self.emptied += 1


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_small_job_reserves_nothing(scene: Scene) -> None:
    with scene.ledger.reserve(CAPACITY) or pytest.fail("nobody else is there"):
        scene.one.hold("job", GIB)
        scene.one.require("job", GIB)
    assert scene.one.waited_seconds == 0.0


def test_a_job_that_needs_more_than_others_leave_gives_up_what_it_has_and_waits(scene: Scene) -> None:
    scene.one.hold("first", 20 * GIB)
    scene.other.hold("second", 20 * GIB)
    scene.one.require("first", 30 * GIB)
    with pytest.raises(MoreMemoryNeededError):
        scene.one.require("first", 40 * GIB)
    emptied = scene.emptied
    again = threading.Thread(target=scene.one.hold, args=("first", 20 * GIB))
    again.start()
    time.sleep(0.3)
    assert scene.one.waits
    assert scene.emptied > emptied, "nothing of it is in memory while it waits"
    scene.other.release()
    again.join(10)
    assert not scene.one.waits
    assert scene.one.waited_seconds > 0.2
    scene.one.require("first", 40 * GIB)
    with pytest.raises(MoreMemoryNeededError):
        scene.other.require("second", 20 * GIB)


def test_a_job_whose_results_turn_out_large_reserves_then(scene: Scene) -> None:
    scene.one.require("job", 40 * GIB)
    with pytest.raises(MoreMemoryNeededError):
        scene.other.require("another", 40 * GIB)
    scene.one.release()
    again = threading.Thread(target=scene.other.hold, args=("another", GIB))
    again.start()
    while again.is_alive():
        scene.one.give_back_if_wanted()
        time.sleep(0.01)
    scene.other.require("another", 40 * GIB)


def test_a_job_that_needs_more_than_the_device_has_gets_all_of_it(scene: Scene) -> None:
    scene.one.hold("job", 500 * GIB)
    assert scene.one.is_everything
    scene.one.require("job", 600 * GIB)
    assert scene.ledger.try_reserve(GIB) is None


def test_a_job_that_lacked_memory_has_the_whole_device_when_it_is_tried_again(scene: Scene) -> None:
    scene.one.hold("job", 20 * GIB)
    assert not scene.one.is_everything
    scene.one.hold_everything()
    assert scene.one.is_everything
    scene.one.hold("job", 20 * GIB)
    assert scene.one.is_everything
    scene.one.release()
    assert not scene.one.is_everything
    scene.other.hold_everything()


def test_what_a_job_reserved_is_kept_for_the_next_one(scene: Scene) -> None:
    scene.one.hold("job", 20 * GIB)
    before = scene.emptied
    scene.one.release()
    assert scene.one.is_kept
    for needed in (18 * GIB, 30 * GIB, GIB):  # less; more, which fits; nothing worth reserving
        scene.one.hold("another", needed)
        assert not scene.one.is_kept
        scene.one.release()
    assert scene.emptied == before
    assert scene.one.reserved_bytes == 30 * GIB
    assert scene.other._ledger is not None
    assert scene.other._ledger.try_reserve(30 * GIB) is None


def test_an_idle_judge_gives_what_it_keeps_to_who_waits(scene: Scene) -> None:
    held: list[bool] = []
    scene.one.hold("job", 20 * GIB)
    scene.one._empty = lambda: held.append(scene.ledger.try_reserve(CAPACITY) is None)
    scene.one.release()
    scene.one.give_back_if_wanted()
    assert held == [], "nobody waits"
    waiting = threading.Thread(target=scene.other.hold_everything)
    waiting.start()
    while waiting.is_alive():
        scene.one.give_back_if_wanted()
        time.sleep(0.01)
    assert held == [True], "the memory is empty before others may have it"
    assert not scene.one.is_kept
    assert scene.other.is_everything


def test_a_judge_that_begins_a_job_lets_who_waits_go_first(scene: Scene) -> None:
    scene.one.hold("job", 20 * GIB)
    scene.one.release()
    waiting = threading.Thread(target=scene.other.hold, args=("large", 50 * GIB))
    waiting.start()
    while not scene.ledger.is_wanted():
        time.sleep(0.01)
    scene.one.hold("small", GIB)
    waiting.join(10.0)
    assert scene.other.reserved_bytes == 50 * GIB
    assert scene.one.reserved_bytes == 0


def test_a_job_in_hand_gives_nothing_back(scene: Scene) -> None:
    scene.one.hold("job", 20 * GIB)
    waiting = threading.Thread(target=scene.other.hold, args=("large", 50 * GIB))
    waiting.start()
    while not scene.ledger.is_wanted():
        time.sleep(0.01)
    scene.one.give_back_if_wanted()
    assert scene.one.reserved_bytes == 20 * GIB
    scene.one.release()
    waiting.join(10.0)
    assert scene.other.reserved_bytes == 50 * GIB


def test_a_judge_without_a_ledger_has_everything(tmp_path: Path) -> None:
    alone = JobMemory(None, PretendedMemory(), lambda: None)
    alone.hold("job", 500 * GIB)
    alone.require("job", 500 * GIB)
    alone.hold_everything()
    assert alone.is_everything
    alone.release()


def test_the_host_has_no_whole_that_could_be_reserved(scene: Scene) -> None:
    """How much of it others use changes: whether a case fits is asked for when it has its reservation."""
    host = JobMemory(scene.ledger, None, lambda: None)
    host.hold("job", 1 << 60)
    host.require("job", 1 << 60)
    assert not host.is_everything
    with pytest.raises(MoreMemoryNeededError):
        scene.other.require("another", 40 * GIB)
    host.release()
