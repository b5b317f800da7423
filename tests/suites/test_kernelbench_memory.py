"""Problem files on a machine that has memory for one at a time, with the real program: all are judged, one waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.suites import kernelbench_reader
from torchstone.suites.kernelbench import ProblemOrder, Read

_MIB = 1 << 20
_PRETENDED = """
from pathlib import Path
from torchstone.processes import free_memory
free_memory.host_bytes = lambda: 800 << 20
free_memory.free_host_bytes = lambda *_: 420 << 20
free_memory.usable_host_bytes = lambda: 252 << 20
from torchstone.processes import memory_ledger
memory_ledger._SHARED_FOLDER = Path({folder!r})
"""
"""For every trusted process of the program, before its own imports. A case of 2 million elements needs 224 MiB."""
_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x): return torch.relu(x) + {number}
def get_inputs(): return [torch.rand({rows}, 2048)]
"""
_SOLUTION = "class ModelNew(nn.Module):\n    def forward(self, x): return x.clamp(min=0) + {number}\n"
_HEAD = "import torch\nimport torch.nn as nn\n"


def written(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def granted_and_waiting(ledger: Path) -> tuple[list[int], int]:
    """The sizes of reservations that are held, and how many wait."""
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    found = [(words[3] == "1", int(words[4])) for words in lines if len(words) == 5]
    return [size for is_granted, size in found if is_granted], sum(not is_granted for is_granted, _ in found)


def run_watched(folder: Path, problems: Path, solutions: Path) -> tuple[int, str, list[int], int]:
    """Exit code and messages of a run, the most bytes that were reserved by any number of processes, and by how many,
    the most that waited.
    """
    pretended = written(folder / "pretended", {"sitecustomize": _PRETENDED.format(folder=str(folder / "ledgers"))})
    source = Path(__file__).parents[2] / "src"
    command = [sys.executable, "-m", "torchstone", "run", "--suite", "kernelbench", "--source", str(problems)]
    options = ["--backend", "kernelbench", "--kernels-dir", str(solutions), "--device", "cpu", "--effort", "quick"]
    process = subprocess.Popen(
        [*command, *options, "--no-measure", "--judges", "2", "--run-id", "a", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{pretended}{os.pathsep}{source}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    most, most_waiting = [0], 0
    end = time.monotonic() + 240
    while process.poll() is None:
        granted, waiting = granted_and_waiting(folder / "ledgers" / "host.memory")
        most, most_waiting = max(most, granted, key=sum), max(most_waiting, waiting)
        assert time.monotonic() < end
        time.sleep(0.01)
    return process.returncode, process.communicate()[1], most, most_waiting


def records_in(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "torchstone_runs" / "a" / "records.jsonl").read_text().splitlines()
    return {json.loads(line)["case"]["operator"].split(".")[1]: json.loads(line) for line in lines}


def test_problems_that_fit_one_at_a_time_are_all_judged(tmp_path: Path) -> None:
    numbers = range(1, 5)
    texts = {f"{number}_Large": _PROBLEM.format(number=number, rows=1024) for number in numbers}
    problems = written(tmp_path / "problems", texts | {"9_Huge": _PROBLEM.format(number=9, rows=1 << 16)})
    solutions = {f"{number}_Large": _HEAD + _SOLUTION.format(number=number) for number in numbers}
    code, messages, most, waited = run_watched(tmp_path, problems, written(tmp_path / "solutions", solutions))
    assert code == 0, messages
    records = records_in(tmp_path)
    assert {name: record["verdict"]["type"] for name, record in records.items()} == {
        f"p{number}_Large": "agrees" for number in numbers
    }
    assert "9_Huge.py: needs about 2.0 GiB to be read" in messages
    assert len(most) == 1, "only one fits at a time"
    assert most[0] > 200 * _MIB, "a case of 2 million elements"
    assert waited > 0
    assert sum(record["stage_seconds"]["wait"] for record in records.values()) > 0.05
    assert granted_and_waiting(tmp_path / "ledgers" / "host.memory") == ([], 0)


# ---- the process that reads: what it asks for


LARGE = _PROBLEM.format(number=1, rows=1024)
SIZE = 2 * 1024 * 2048 * 4
"""Of its inputs and results."""


def read(granted: int, most: int, *, reserved: bool = True, device: str = "cpu") -> Read:
    order = ProblemOrder("kernelbench.p1_Large.default", "1_Large.py", LARGE, device, granted, most, reserved)
    return kernelbench_reader._read(order)


def test_a_problem_asks_for_what_it_needs_before_anything_is_allocated() -> None:
    assert read(SIZE, 100 * SIZE, reserved=False) == Read(wanted_bytes=2 * SIZE)
    assert read(2 * SIZE, 100 * SIZE).case is not None


def test_a_problem_that_cannot_fit_even_alone_says_so_without_waiting() -> None:
    exclusion = read(0, SIZE, reserved=False).exclusion
    assert exclusion is not None
    assert exclusion.needed_bytes == 2 * SIZE
    assert "(2 x 0.0 GiB of inputs, weights and results), 0.0 GiB can be used for it" in exclusion.reason


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_problem_that_takes_more_than_it_asked_for_gets_twice_as_much_until_there_is_no_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def lacking(*_: object) -> None:
        raise error

    monkeypatch.setattr(kernelbench_reader, "draw_call", lacking)
    assert read(2 * SIZE, 7 * SIZE) == Read(wanted_bytes=4 * SIZE)
    assert read(4 * SIZE, 7 * SIZE) == Read(wanted_bytes=7 * SIZE)
    exclusion = read(7 * SIZE, 7 * SIZE).exclusion
    assert exclusion is not None
    assert "all that can be used" in exclusion.reason
    assert exclusion.needed_bytes == 14 * SIZE


class PretendedDevice:
    """Of 128 times the problem's size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: list[int]) -> None:
        self.fraction = 0.0
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free.pop(0), 128 * SIZE))
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self.limit)
        monkeypatch.setattr(kernelbench_reader, "_MAX_WAIT_FOR_FREE_SECONDS", 0.3)
        monkeypatch.setattr(kernelbench_reader, "_large_case", lambda *_: None)

    def limit(self, fraction: float) -> None:
        self.fraction = fraction


def test_a_reader_waits_for_reserved_memory_of_a_device_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    device = PretendedDevice(monkeypatch, [0, 3 * SIZE, 50 * SIZE])
    assert read(4 * SIZE, 100 * SIZE, device="cuda") == Read()
    assert device.fraction == 4 / 128


def test_memory_that_programs_without_reservations_hold_is_told_with_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    PretendedDevice(monkeypatch, [SIZE] * 9)
    exclusion = read(4 * SIZE, 100 * SIZE, device="cuda").exclusion
    assert exclusion is not None
    assert exclusion.needed_bytes == 2 * SIZE, "it is tried again in a later run"


def test_a_small_problem_on_a_full_device_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    PretendedDevice(monkeypatch, [SIZE] * 9)
    assert read(4 * SIZE, 100 * SIZE, reserved=False, device="cuda") == Read(wanted_bytes=4 * SIZE + 1)
