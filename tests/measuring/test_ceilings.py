"""Ceilings are measured once, kept for a day, and never trusted blindly from a file."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.measuring import ceilings as measuring
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.kept_ceilings import LONGEST_AGE_NS, Ceilings, KeptCeilings, MemoryCeiling
from torchstone.schema import encode

SMALL = MemoryCeiling(1 << 20, 40e9, 20e9, 30e9, 50e9)
LARGE = MemoryCeiling(1 << 26, 10e9, 5e9, 8e9, 12e9)


def some(measured_unix_ns: int | None = None) -> Ceilings:
    now = time.time_ns() if measured_unix_ns is None else measured_unix_ns
    return Ceilings(now, 200.0, (SMALL, LARGE), {"float32": 1e11})


@pytest.fixture(scope="module")
def measured() -> tuple[Ceilings, float]:
    began = time.process_time()
    found = DeviceCeilings(torch.device("cpu"), 1, (), KeptCeilings(None)).get("float32")
    return found, time.process_time() - began


def test_measuring_a_cpu_is_cheap_and_gives_sane_figures(measured: tuple[Ceilings, float]) -> None:
    found, cpu_seconds = measured
    assert cpu_seconds < 2
    assert 10 < found.latency_ns < 1e5
    assert all(1e8 < item.copy_bytes_per_second < 1e12 for item in found.memory)
    assert 1e8 < found.flops_per_second["float32"] < 1e14


def test_each_dtype_is_measured_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(measuring, "_memory_ceilings", lambda device: (SMALL, LARGE))
    monkeypatch.setattr(measuring, "_latency_ns", lambda device: 100.0)

    def rate(device: torch.device, dtype: str) -> float:
        asked.append(dtype)
        return 1e9 if dtype == "float16" else 1e11

    monkeypatch.setattr(measuring, "_matmul_flops_per_second", rate)
    kept = KeptCeilings(tmp_path, "cpu")
    ceilings = DeviceCeilings(torch.device("cpu"), 1, (), kept)
    assert not ceilings.is_measured(None)
    ceilings.get("int64")
    assert asked == []
    assert ceilings.is_measured(None)
    assert ceilings.get("float16").flops_per_second == {"float16": 1e11, "float32": 1e11}, "float32 can stand in"
    ceilings.get("float32")
    ceilings.get("float16")
    assert sorted(asked) == ["float16", "float32"]
    assert DeviceCeilings(torch.device("cpu"), 1, (), kept).is_measured("float16"), "another process finds it on disk"


def test_doubted_ceilings_are_measured_once_more_and_the_better_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = iter((100.0, 300.0, 1.0))
    monkeypatch.setattr(measuring, "_memory_ceilings", lambda device: (SMALL,))
    monkeypatch.setattr(measuring, "_latency_ns", lambda device: next(latencies))
    ceilings = DeviceCeilings(torch.device("cpu"), 1, (), KeptCeilings(None))
    ceilings.get(None)
    ceilings.request_new_measurement()
    ceilings.request_new_measurement()
    assert not ceilings.is_measured(None), "a second request does not withdraw the first"
    assert ceilings.get(None).latency_ns == 100.0
    ceilings.request_new_measurement()
    assert ceilings.is_measured(None), "once is enough"


def test_measuring_leaves_the_cores_of_the_judge_alone(measured: tuple[Ceilings, float]) -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    one = min(before)
    ceilings = DeviceCeilings(torch.device("cpu"), 1, (one,), KeptCeilings(None))

    def look() -> Ceilings:
        seen.append(os.sched_getaffinity(0))
        return measured[0]

    ceilings._on_the_workers_cores(look)
    assert seen == [{one}]
    assert os.sched_getaffinity(0) == before


def test_a_failure_reaches_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> float:
        raise RuntimeError("no memory")

    monkeypatch.setattr(measuring, "_latency_ns", fail)
    ceilings = DeviceCeilings(torch.device("cpu"), 1, (), KeptCeilings(None))
    with pytest.raises(RuntimeError, match="no memory"):
        ceilings.get(None)
    assert not ceilings.is_measured(None)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    kept = KeptCeilings(tmp_path / "new", "cpu", 1, "2.9")
    kept.write(some(now := time.time_ns()))
    assert kept.read() == some(now)
    assert KeptCeilings(tmp_path / "new", "cpu", 1, "2.10").read() is None, "another torch is another device"
    assert KeptCeilings(tmp_path / "new", "cpu", 2, "2.9").read() is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b'{"measured_unix_ns": 1}',
        encode(some(0)),
        encode(some(time.time_ns() - LONGEST_AGE_NS - 10**9)),
        encode(some(time.time_ns() + 10**15)),
        encode(msgspec.structs.replace(some(), latency_ns=-1.0)),
        encode(msgspec.structs.replace(some(), memory=())),
        encode(msgspec.structs.replace(some(), flops_per_second={"float32": 0.0})),
    ],
)
def test_a_file_that_is_broken_old_or_absurd_is_as_good_as_none(data: bytes, tmp_path: Path) -> None:
    kept = KeptCeilings(tmp_path, "cpu")
    kept.write(some())
    (file,) = tmp_path.iterdir()
    file.write_bytes(data)
    assert kept.read() is None
    kept.write(some())
    assert kept.read() is not None


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptCeilings(tmp_path / "file" / "folder", "cpu")
    kept.write(some())
    assert kept.read() is None


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    kept = KeptCeilings(tmp_path, "cpu")
    threads = [threading.Thread(target=lambda: [kept.write(some()) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    readable = [kept.read() is not None for _ in range(200) if list(tmp_path.glob("*.json"))]
    for thread in threads:
        thread.join()
    assert all(readable)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_the_working_set_decides_which_ceiling_counts() -> None:
    found = some()
    assert found.bytes_per_second(10, 0, 0, working_set_bytes=1 << 10) == pytest.approx(40e9)
    assert found.bytes_per_second(10, 0, 0, working_set_bytes=1 << 25) == pytest.approx(40e9), "between: the better"
    assert found.bytes_per_second(10, 0, 0, working_set_bytes=1 << 30) == pytest.approx(10e9)
    assert found.bytes_per_second(10, 10, 0, working_set_bytes=1 << 30) == pytest.approx(8e9)
    assert found.bytes_per_second(10, 10, 10, working_set_bytes=1 << 30) == pytest.approx(12e9)
    assert found.bytes_per_second(0, 0, 0, working_set_bytes=0) > 0


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**10))
def test_a_larger_working_set_never_has_a_higher_ceiling(read: int, written: int, updated: int, size: int) -> None:
    updated = min(read, written, updated)
    found = some(1)
    assert found.bytes_per_second(read, written, updated, 2 * size) <= found.bytes_per_second(
        read, written, updated, size
    )
    rate = found.bytes_per_second(read, written, updated, size)
    assert 5e9 * 0.999 <= rate <= 50e9 * 1.001


def test_a_failure_while_measuring_again_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_memory_ceilings", lambda device: (SMALL,))
    monkeypatch.setattr(measuring, "_latency_ns", lambda device: 100.0)
    ceilings = DeviceCeilings(torch.device("cpu"), 1, (), KeptCeilings(None))
    known = ceilings.get(None)

    def fail(device: torch.device) -> float:
        raise RuntimeError("no memory")

    ceilings.request_new_measurement()
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "_latency_ns", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            ceilings.get(None)
    assert ceilings.get(None).memory == known.memory
