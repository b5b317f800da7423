"""A run that was stopped says how many of its cases were not judged, also when it was killed; resumed, it says none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.cli import main

KILLED = """
import os, signal, sys
from pathlib import Path

import made_records as making
from torchstone.backends import ListedBackend
from torchstone.executors import FakeExecutor
from torchstone.reports import make_report
from torchstone.runs import RunRequest, SilentObserver, execute
from torchstone.suites import ListedSuite

RELU, ADD = "aten.relu.default", "aten.add.Tensor"
cases = [making.case(operator, size) for operator in (RELU, ADD) for size in (1, 2, 3)]
resumes = "--resume" in sys.argv


def decide(job):
    if job.case is cases[2] and not resumes:
        os.kill(os.getpid(), signal.SIGKILL)
    return making.AGREES


execute(
    RunRequest(device="cpu", output_dir=Path("runs"), run_id="x", resume=resumes, command=("torchstone", "run")),
    SilentObserver(),
    make_report,
    executor_factory=lambda options: FakeExecutor(decide),
    suite=ListedSuite(cases),
    backend=ListedBackend(making.implementation(name) for name in (RELU, ADD)),
)
"""


def run(folder: Path, *arguments: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", KILLED, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, timeout=60, check=False).returncode


def ended() -> list[bool]:
    """Of each part of the run, whether its end is known."""
    return [part["ended_unix_ns"] is not None for part in json.loads(Path("runs/x/plan.json").read_text())["parts"]]


def test_a_killed_run_tells_what_it_did_not_judge_and_a_resumed_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path) == -signal.SIGKILL
    assert not Path("runs/x/OVERALL_SUMMARY.md").exists()
    assert main(["show", "runs/x"]) == 0
    out = capsys.readouterr().out
    assert "not judged  4 of 6 cases: the run was stopped before them, or is still going on\n" in out
    assert "2/3 agrees, 1 not judged" in out
    assert "0/3 agrees, 3 not judged" in out
    assert "2 operators: 0 right, 0 not right, 2 not judged, 0 missing · 6 cases: 2 agrees, 4 not judged" in out
    assert main(["show", "runs/x", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["cases"], summary["not_judged"], summary["run"]["planned_cases"]) == (2, 4, 6)
    assert (summary["run"]["suite"], summary["run"]["backends"], summary["run"]["device"]) == ("smoke", ["aten"], "cpu")
    assert summary["operators_not_judged"] == 2
    assert summary["run"]["commands"] == ["torchstone run"]

    assert ended() == [False]

    assert run(tmp_path, "--resume") == 0
    assert ended() == [False, True]
    assert main(["show", "runs/x"]) == 0
    out = capsys.readouterr().out
    assert "not judged  none of 6 cases\n" in out
    assert ", resumed 1 time\n" in out
    text = Path("runs/x/OVERALL_SUMMARY.md").read_text()
    assert "| not judged | none of 6 cases |" in text
    assert "| versions | torchstone " in text


def test_a_folder_of_an_older_version_is_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path)
    Path("runs/x/plan.json").unlink()
    assert main(["show", "runs/x"]) == 0
    out = capsys.readouterr().out
    assert "not judged  unknown: there is no plan.json" in out
    assert "1 operator: 1 right, 0 not right, 0 missing · 2 cases: 2 agrees" in out
    assert main(["show", "runs/x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["not_judged"] is None
