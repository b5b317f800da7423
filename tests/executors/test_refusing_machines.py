"""Judging on machines that refuse ptrace, reading other processes' memory, or namespaces, as containers do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from refusing_machine import refusing
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.isolation.sandbox import LAYERS
from torchstone.protocol.shared_memory import HostArena, MirroredMemory
from torchstone.schema import Record, decode, verdict_name

_PROGRAM = """
import sys
sys.path[:0] = {path!r}
from jobs import job
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import encode
for record in LocalExecutor(ExecutorOptions(device="cpu")).run([job(kind) for kind in {kinds!r}]):
    print(encode(record).decode())
"""
KINDS = ["right", "wrong", "raises", "crashes", "hangs"]
VERDICTS = ["agrees", "disagrees", "crashed", "crashed", "timed_out"]
_WITHOUT_NAMESPACES = {"processes", "files", "network", "ipc"}


def judged_where(refused: str) -> list[Record]:
    program = _PROGRAM.format(path=[str(Path(__file__).parent)], kinds=KINDS)
    done = subprocess.run(
        [*refusing(refused), sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [decode(line, Record) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("refused", [pytest.param("ptrace", marks=pytest.mark.slow), "ptrace,namespaces"])
def test_without_ptrace_kernels_are_judged_and_the_record_says_how(refused: str) -> None:
    records = judged_where(refused)
    assert sorted(verdict_name(record.verdict) for record in records) == sorted(VERDICTS)
    assert {(record.isolation.held, record.isolation.results) for record in records} == {("stopped", "copied")}
    active = {frozenset(record.isolation.active) for record in records}
    lost = _WITHOUT_NAMESPACES if "namespaces" in refused else set()
    assert all(not lost & layers for layers in active)
    assert all(layers >= {"capabilities", "limits"} for layers in active)


@pytest.mark.slow
def test_strict_isolation_is_refused_without_ptrace(tmp_path: Path) -> None:
    command = [*refusing("ptrace"), sys.executable, "-m", "torchstone", "run", "--ops", "relu", "--no-measure"]
    more = ["--isolation", "strict", "--output-dir", str(tmp_path), "--device", "cpu"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert "does not offer" in done.stderr
    assert "ptrace, to hold a kernel still" in done.stderr


def test_doctor_says_what_is_refused() -> None:
    command = [*refusing("ptrace,namespaces"), sys.executable, "-m", "torchstone", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = {item["name"]: item["good"] for item in json.loads(done.stdout) if item["topic"] == "isolation"}
    assert found["worker"], "kernels can be judged"
    assert not any(found[name] for name in (*_WITHOUT_NAMESPACES, "standstill", "results"))
    assert set(found) == {"worker", "standstill", "results", *LAYERS}


def test_results_can_be_copied_where_they_could_be_read() -> None:
    """The switch that also turns CUDA IPC off."""
    sys.path[:0] = [str(Path(__file__).parent)]
    from jobs import job

    jobs = [job(kind) for kind in KINDS[:3]]
    records = list(LocalExecutor(ExecutorOptions(device="cpu", results="copied")).run(jobs))
    assert {verdict_name(record.verdict) for record in records} == {"agrees", "disagrees", "crashed"}
    assert {(record.isolation.held, record.isolation.results) for record in records} == {("traced", "copied")}


def test_a_mirror_of_the_judges_memory_brings_arguments_and_takes_them_back() -> None:
    """What a worker has of the arena on a device that shares no memory. Here the device is the CPU."""
    arena = HostArena(64)
    ours = arena.tensor(0, 16, torch.float32)
    ours.copy_(torch.arange(16.0))
    mirror = MirroredMemory(arena.descriptor, 64, torch.device("cpu"))
    theirs = mirror.tensor(8, 4, torch.float32)
    mirror.fetch(64)
    assert theirs.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert theirs.data_ptr() == mirror.address + 8
    theirs.fill_(-1)
    assert ours[2].item() == 2.0, "the judge sees nothing before it is delivered"
    mirror.deliver(16)
    assert ours[:6].tolist() == [0.0, 1.0, -1.0, -1.0, 4.0, 5.0]
    arena.close()
