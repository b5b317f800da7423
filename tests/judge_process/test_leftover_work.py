"""Whether somebody else has time on a core is noticed, and waited out; an idle core is quiet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest

from torchstone.judge_process import leftover_work
from torchstone.judge_process.leftover_work import MOST_STOLEN, IdleCores, stolen_share, with_siblings

CORE = max(os.sched_getaffinity(0))
LONG_NS = 100_000_000
HOG = f"import os; os.sched_setaffinity(0, {{{CORE}}}); print(flush=True)\nwhile True: pass"


@contextmanager
def somebody_on_the_core() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", HOG], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def seeing(monkeypatch: pytest.MonkeyPatch, *shares: float) -> list[int]:
    """Looks find these shares, the last of them for ever; returns the cores that are looked at."""
    found, cores = chain(shares, repeat(shares[-1])), list[int]()

    def look(core: int, look_ns: int) -> float:
        cores.append(core)
        return next(found)

    monkeypatch.setattr(leftover_work, "stolen_share", look)
    monkeypatch.setattr(leftover_work, "with_siblings", list)
    return cores


def test_who_else_is_on_the_core_is_seen() -> None:
    with somebody_on_the_core():
        assert stolen_share(CORE, LONG_NS) > 0.2
        began = time.monotonic()
        assert not IdleCores((CORE,), patience_seconds=0.5).wait_until_idle()
        assert time.monotonic() - began < 5


def ticks_taken_by_the_host() -> int:
    return int(Path("/proc/stat").read_text().split()[8])


def test_an_idle_core_is_quiet() -> None:
    before = ticks_taken_by_the_host()
    if not IdleCores((CORE,), patience_seconds=10).wait_until_idle() and (
        os.getloadavg()[0] > 0.5 or ticks_taken_by_the_host() > before
    ):
        pytest.skip("this machine has no idle core to try it on")
    assert min(stolen_share(CORE) for _ in range(20)) <= MOST_STOLEN


def test_the_thread_that_asks_stays_where_it_was() -> None:
    before = os.sched_getaffinity(0)
    stolen_share(CORE, 1_000_000)
    assert os.sched_getaffinity(0) == before


def test_quiet_is_believed_after_several_looks_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = seeing(monkeypatch, 0.5, 0.01, 0.01, 0.5, 0.01)
    assert IdleCores((3,)).wait_until_idle()
    assert len(cores) == 4 + 3


def test_all_cores_must_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = seeing(monkeypatch, 0.01, 0.5, 0.01)
    assert not IdleCores((3, 4)).are_idle()
    assert cores == [3, 4]


def test_patience_is_spent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, 0.5)
    hope = IdleCores((3,), patience_seconds=0.2)
    assert not hope.wait_until_idle()
    began = time.monotonic()
    assert not hope.wait_until_idle()
    assert time.monotonic() - began < 0.1


def test_where_there_are_no_cores_there_is_nothing_to_wait_for() -> None:
    assert IdleCores((), patience_seconds=0).wait_until_idle()


def test_cores_that_share_their_arithmetic_are_looked_at_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    folder = tmp_path / f"cpu{CORE}" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(f"{min(os.sched_getaffinity(0))},{CORE}-{CORE},4094\n")
    before = os.sched_getaffinity(0)
    assert with_siblings((CORE,), tmp_path) == sorted({min(before), CORE})
    assert os.sched_getaffinity(0) == before


def test_a_small_machine_is_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    available = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "cpu_count", lambda: 1 + CORE)
    monkeypatch.setattr(leftover_work, "_FEW_CORES", 1 + CORE)
    assert set(with_siblings((CORE,), tmp_path)) >= set(available)
    assert with_siblings((), tmp_path) == []


def test_a_system_that_tells_nothing_of_siblings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert with_siblings((CORE,), tmp_path) == [CORE]
