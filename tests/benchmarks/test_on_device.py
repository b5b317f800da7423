"""benchmarks/on_device.py without a GPU: a few lines end to end, lines that are cut, how logs of tests are read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("on_device", "device_lines"):
        sys.modules.pop(name, None)


def on_device(output: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    command = [sys.executable, str(BENCHMARKS / "on_device.py"), "--device", "cpu", "--brief", "--output", str(output)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a figure is not what it should be, as beside other work
    (results,) = output.glob("results-*.json")
    found: dict[str, Any] = json.loads(results.read_text())
    return done.stdout, found


def test_lines_have_figures_a_table_and_logs(tmp_path: Path) -> None:
    printed, found = on_device(tmp_path, "--lines", "import torch,first record,tests")
    assert [row["name"] for row in found["lines"]] == ["import torch", "first record", "tests"]
    assert [row["exit_code"] for row in found["lines"]] == [0, 0, 0]
    _, first, tests = found["lines"]
    assert min(first["bare_seconds"], first["first_seconds"]) > 0
    passed = tests["counts"]["PASSED"]
    assert tests["measured"] == f"{passed} passed, 0 failed, 0 skipped of {passed}"
    assert printed == (tmp_path / "table-lines.md").read_text()
    assert "| tests | 20 to 24 | tests/gpu |" in printed
    assert "==== first record: python -m torchstone run" in (tmp_path / "logs-lines.txt").read_text()


def test_a_brief_part_has_the_lines_that_can_be_brief(tmp_path: Path) -> None:
    _, found = on_device(tmp_path, "--part", "1", "--seconds", "1")
    assert [row["name"] for row in found["lines"]] == ["import torch", "first record"]


def test_lines_for_which_no_time_or_no_data_is_left_say_so(tmp_path: Path) -> None:
    _, found = on_device(tmp_path, "--lines", "40 traces,import torch", "--seconds", "1")
    assert [row["measured"] for row in found["lines"]] == ["left out: give --traces", "not run: no time was left"]
    assert [row["met"] for row in found["lines"]] == [None, None]


def test_figures_of_several_calls_stand_in_one_table_of_the_page(tmp_path: Path) -> None:
    import gpu_page

    _, found = on_device(tmp_path, "--lines", "import torch,40 traces")
    assert found["machine"]
    page = f"# Page\n\n{gpu_page.BEGINNING}{gpu_page.END}\nEnd\n"
    once = gpu_page.with_figures(page, [found])
    assert once.count("| import torch | 22 |") == 1
    assert f"| {found['machine']}, {found['date']} |" in once
    assert "40 traces" not in once, "a line that was not run has no row"
    later = {**found, "date": "2099-01-01"}
    assert gpu_page.with_figures(once, [later]) == once.replace(found["date"], "2099-01-01")
    assert gpu_page.with_figures(once, []) == once
    assert gpu_page.BEGINNING in gpu_page.PAGE.read_text()


CUT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_a_line_that_overruns_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import on_device as program

    monkeypatch.setattr(program, "ENDING_SECONDS", 0.5)
    began = time.monotonic()
    code, took, _ = program._call([sys.executable, "-c", CUT], tmp_path / "output.txt", 2.0, {})
    assert (code, took < 20) == (None, True)
    child = int((tmp_path / "output.txt").read_text())
    while _runs(child):
        assert time.monotonic() - began < 30, "the child of the line still runs"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


BESIDE = """
created: 5/5 workers
5 workers [5 items]
scheduling tests via LoadFileScheduling
[gw0] [ 20%] PASSED tests/gpu/test_gpu.py::test_one[a b]
tests/gpu/test_gpu.py::test_one[a b]
[gw1] [ 40%] FAILED tests/gpu/test_sweep.py::test_two
[gw1] [ 60%] SKIPPED tests/gpu/test_sweep.py::test_three
"""
ALONE = """
collecting ... collected 9 items / 7 deselected / 2 selected
tests/gpu/test_gpu.py::test_one[a b] PASSED                 [ 50%]
tests/gpu/test_sweep.py::test_two ERROR                     [100%]
"""


@pytest.mark.parametrize(
    ("log", "code", "expected"),
    [
        (BESIDE, None, ("1 passed, 1 failed, 1 skipped of 5", False, ["tests/gpu/test_sweep.py::test_two"])),
        (ALONE, 1, ("1 passed, 1 failed, 0 skipped of 9", False, ["tests/gpu/test_sweep.py::test_two"])),
        (BESIDE.replace("FAILED", "PASSED"), None, ("2 passed, 0 failed, 1 skipped of 5", None, [])),
    ],
)
def test_a_log_of_tests_is_read_as_far_as_it_goes(
    log: str, code: int | None, expected: tuple[str, bool | None, list[str]]
) -> None:
    from device_lines import Reading, Setting, outcomes_of_tests

    setting = Setting("cpu", False, Path(), None, None, {})
    found = outcomes_of_tests(Reading(setting, Path(), log, code, 1.0, 0.0))
    assert (found["measured"], found["met"], found["failed"]) == expected


def test_every_line_belongs_to_a_part_that_fits_into_one_call_or_to_none() -> None:
    from device_lines import LINES

    assert len({line.name for line in LINES}) == len(LINES)
    for part in (1, 2, 3, 4):
        assert 0 < sum(line.seconds for line in LINES if line.part == part) <= 720  # few lines reach their limits


def test_findings_of_the_red_team_are_counted_by_kind_and_status() -> None:
    from device_lines import Reading, Setting, redteam

    told = {"exit_code": 1, "findings": [{"kind": "honest", "status": "agrees"}, {"kind": "cheat", "status": "missed"}]}
    log = f"warning: {{}}\n{json.dumps(told, separators=(',', ':'))}\n"
    found = redteam(Reading(Setting("cpu", False, Path(), None, None, {}), Path(), log, 1, 1.0, 0.0))
    assert (found["measured"], found["met"]) == ("1 cheat: missed, 1 honest: agrees", False)
