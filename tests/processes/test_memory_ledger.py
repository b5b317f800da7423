"""The ledger of reserved memory: across processes, in the order of asking, and free again when a holder is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchstone.processes import memory_ledger
from torchstone.processes.memory_ledger import MemoryLedger, Reservation

_HOLD = """
import sys, time
from pathlib import Path
from torchstone.processes.memory_ledger import MemoryLedger
folder, capacity, size, seconds = sys.argv[1:]
with MemoryLedger("device", lambda: int(capacity), Path(folder)).reserve(int(size)):
    print("held", flush=True)
    time.sleep(float(seconds))
print("released", flush=True)
"""
_TAKE_TURNS = """
import random, sys, time
from pathlib import Path
from torchstone.processes.memory_ledger import MemoryLedger
folder, seed = Path(sys.argv[1]), sys.argv[2]
ledger, sizes = MemoryLedger("device", lambda: 100, folder), random.Random(seed)
for turn in range(12):
    size = sizes.choice((10, 30, 60, 100))
    with ledger.reserve(size):
        mark = folder / f"{seed}.{turn}.{size}.held"
        mark.touch()
        taken = sum(int(each.name.split(".")[2]) for each in folder.glob("*.held"))
        assert taken <= 100, taken
        time.sleep(0.002)
        mark.unlink()
"""
_WAIT_SECONDS = 20.0


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def holding(folder: Path, size: int, seconds: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a reservation."""
    process = started(_HOLD, folder, 100, size, seconds)
    try:
        await_word(process, "held")
        yield process
    finally:
        process.kill()
        process.communicate()


def await_word(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(folder: Path) -> int:
    """How many reservations wait."""
    lines = [line.split() for line in (folder / "device.memory").read_text().splitlines()]
    return sum(len(words) == 5 and words[3] == "0" for words in lines)


@pytest.fixture
def ledger(tmp_path: Path) -> MemoryLedger:
    return MemoryLedger("device", lambda: 100, tmp_path)


def taken(reservation: Reservation | None) -> Reservation:
    assert reservation is not None
    return reservation


class Asking:
    """A thread that waits for a reservation."""

    def __init__(self, ledger: MemoryLedger, size: int) -> None:
        self.has_it, self.gives_up, self.found = threading.Event(), False, False
        self._release = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(ledger, size))
        self._thread.start()

    def _ask(self, ledger: MemoryLedger, size: int) -> None:
        reservation = ledger.reserve(size, lambda: self.gives_up)
        self.found = reservation is not None
        self.has_it.set()
        if reservation is not None:
            self._release.wait(_WAIT_SECONDS)
            reservation.release()

    def end(self) -> None:
        self._release.set()
        self._thread.join(_WAIT_SECONDS)
        assert not self._thread.is_alive()


def test_what_fits_beside_others_is_granted_at_once(tmp_path: Path, ledger: MemoryLedger) -> None:
    with holding(tmp_path, 60), taken(ledger.reserve(40)) as mine:
        assert mine.size_bytes == 40
        assert ledger.try_reserve(1) is None


def test_what_does_not_fit_waits_for_the_release_of_another_process(tmp_path: Path, ledger: MemoryLedger) -> None:
    with holding(tmp_path, 60, seconds=1.0) as other:
        began = time.monotonic()
        with taken(ledger.reserve(50)):
            assert time.monotonic() - began > 0.4
            await_word(other, "released")


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path, ledger: MemoryLedger) -> None:
    """Although nobody has asked how it ended: such a process is still listed by the system."""
    with holding(tmp_path, 100) as other:
        assert ledger.try_reserve(50) is None
        os.kill(other.pid, signal.SIGKILL)
        with taken(ledger.reserve(50)):
            pass


def test_a_process_that_is_killed_while_it_waits_stops_nobody(tmp_path: Path, ledger: MemoryLedger) -> None:
    with taken(ledger.reserve(60)):
        other = started(_HOLD, tmp_path, 100, 100, 0)
        until(lambda: waiting(tmp_path) == 1)
        assert ledger.try_reserve(10) is None, "it was first"
        other.kill()
        until(lambda: (found := ledger.try_reserve(10)) is not None and not found.release())
        other.communicate()


def test_another_process_with_the_number_of_a_dead_one_does_not_hold_its_memory(
    tmp_path: Path, ledger: MemoryLedger
) -> None:
    with holding(tmp_path, 100) as other:
        text = (tmp_path / "device.memory").read_text().split()
        ticket, pid, begun, *rest = text
        assert int(pid) == other.pid
        line = " ".join([ticket, pid, str(int(begun) - 1), *rest]).ljust(127) + "\n"
        (tmp_path / "device.memory").write_text(line)
        with taken(ledger.try_reserve(100)):
            pass


def test_a_large_reservation_is_not_overtaken_by_small_ones_that_would_fit(
    tmp_path: Path, ledger: MemoryLedger
) -> None:
    first = taken(ledger.reserve(60))
    large = Asking(ledger, 100)
    until(lambda: waiting(tmp_path) == 1)
    small = Asking(ledger, 10)
    until(lambda: waiting(tmp_path) == 2)
    assert not small.has_it.wait(0.3)
    first.release()
    assert large.has_it.wait(_WAIT_SECONDS)
    assert not small.has_it.wait(0.3)
    large.end()
    assert small.has_it.wait(_WAIT_SECONDS)
    small.end()


def test_more_than_can_ever_be_had_is_granted_to_one_that_is_alone(ledger: MemoryLedger) -> None:
    with taken(ledger.reserve(1000)):
        assert ledger.try_reserve(1) is None
    with taken(ledger.try_reserve(1)):
        pass


def test_a_reservation_grows_only_if_that_fits_at_once(ledger: MemoryLedger) -> None:
    first, second = taken(ledger.reserve(40)), taken(ledger.reserve(40))
    assert first.enlarge(60)
    assert not first.enlarge(61)
    assert first.enlarge(20), "it has that already"
    assert first.size_bytes == 60
    second.release()
    assert first.enlarge(1000), "nobody else holds any"
    first.release()


def test_whoever_gives_up_waiting_leaves_nothing_behind(tmp_path: Path, ledger: MemoryLedger) -> None:
    with taken(ledger.reserve(60)):
        asking = Asking(ledger, 50)
        until(lambda: waiting(tmp_path) == 1)
        asking.gives_up = True
        asking.end()
        assert not asking.found
        assert waiting(tmp_path) == 0
        with taken(ledger.try_reserve(40)):
            pass


def test_releasing_twice_does_not_release_the_reservation_of_another(ledger: MemoryLedger) -> None:
    first = taken(ledger.reserve(60))
    first.release()
    with taken(ledger.reserve(100)):
        first.release()
        assert ledger.try_reserve(1) is None


def test_the_capacity_is_asked_for_each_time(tmp_path: Path) -> None:
    """The host has more free memory at one time than at another."""
    capacity = [100]
    ledger = MemoryLedger("host", lambda: capacity[0], tmp_path)
    with taken(ledger.reserve(60)):
        assert ledger.try_reserve(50) is None
        capacity[0] = 110
        with taken(ledger.try_reserve(50)):
            pass


def test_other_memories_have_other_ledgers(tmp_path: Path, ledger: MemoryLedger) -> None:
    with taken(ledger.reserve(100)), taken(MemoryLedger("another", lambda: 100, tmp_path).try_reserve(100)):
        pass


def test_every_user_may_write_to_the_ledger_and_none_may_remove_it(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    taken(MemoryLedger("device", lambda: 100, folder).reserve(1)).release()
    assert (folder / "device.memory").stat().st_mode & 0o777 == 0o666
    assert folder.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_processes_of_other_users_that_the_system_hides_count_as_alive(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(pid: int) -> int:
        raise error

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(memory_ledger, "_started", hidden)
    monkeypatch.setattr(os, "kill", refused)
    assert memory_ledger._is_alive(12345, 6)


def test_a_ledger_that_somebody_removes_is_begun_again(tmp_path: Path, ledger: MemoryLedger) -> None:
    with holding(tmp_path, 60):
        asking = Asking(ledger, 50)
        until(lambda: waiting(tmp_path) == 1)
        (tmp_path / "device.memory").unlink()
        assert asking.has_it.wait(_WAIT_SECONDS)
        assert ledger.try_reserve(60) is None
        asking.end()


def test_a_ledger_with_unreadable_lines_still_works(tmp_path: Path, ledger: MemoryLedger) -> None:
    (tmp_path / "device.memory").write_bytes(random.Random(1).randbytes(1000))
    with taken(ledger.reserve(60)):
        assert ledger.try_reserve(50) is None


def test_many_processes_never_hold_more_than_there_is(tmp_path: Path, ledger: MemoryLedger) -> None:
    processes = [started(_TAKE_TURNS, tmp_path, seed) for seed in range(5)]
    assert [process.wait(60) for process in processes] == [0] * 5
    for process in processes:
        process.communicate()
    with taken(ledger.try_reserve(100)):
        pass
    assert len((tmp_path / "device.memory").read_bytes()) <= 5 * 128, "lines are used again"
