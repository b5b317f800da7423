"""Problem files from the command line: by which names they are chosen, and where a run says what it leaves out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchstone.cli import main
from torchstone.errors import UsageError
from torchstone.suites import CaseQuery
from torchstone.suites.kernelbench import KernelBenchSuite

RELU = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x)
def get_inputs(): return [torch.rand(24, 16)]
"""
DROPOUT = RELU.replace("torch.relu(x)", "torch.nn.functional.dropout(x)")
REASON = "20_Dropout.py: the model returns a different result each time (dropout, random numbers)"
ShownBy = Callable[[list[str]], str]


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def torchstone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, in this folder."""
    return subprocess.run(
        [sys.executable, "-m", "torchstone", *arguments],
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run in which two problems were named by the stems of their files, and one is no case."""
    folder = tmp_path_factory.mktemp("ran")
    written(folder / "KernelBench" / "level1", **{"19_ReLU": RELU, "20_Dropout": DROPOUT, "21_Other": RELU})
    options = ["--suite", "kernelbench", "--source", "KernelBench", "--ops", "19_ReLU,20_Dropout", "--run-id", "a"]
    return torchstone(folder, "run", *options, "--device", "cpu", "--effort", "quick", "--no-measure"), folder


def test_a_problem_is_chosen_by_the_stem_of_its_file(ran: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, folder = ran
    assert done.returncode == 0, done.stderr
    records = (folder / "torchstone_runs" / "a" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["case"]["operator"] for line in records] == ["kernelbench.level1__19_ReLU.default"]


def test_what_was_left_out_is_in_the_closing_line_the_page_and_in_json(
    ran: tuple[subprocess.CompletedProcess[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, folder = ran
    told = f"left out 1 ({REASON})"
    assert told in done.stdout.splitlines()[-1]
    assert (
        f"| 1 | {REASON.replace('_', chr(92) + '_')} |"
        in (folder / "torchstone_runs" / "a" / "OVERALL_SUMMARY.md").read_text()
    )
    monkeypatch.chdir(folder)
    assert main(["show", "a"]) == 0
    assert told in capsys.readouterr().out.splitlines()[-1]
    assert main(["show", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["left_out"] == {REASON: 1}


def test_a_solution_without_its_class_is_told_so_without_frames_of_torchstone(
    ran: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, folder = ran
    solutions = written(folder / "solutions", **{"19_ReLU": "class Modelnew: pass"})
    options = [
        "--suite",
        "kernelbench",
        "--source",
        "KernelBench",
        "--ops",
        "19_ReLU",
        "--run-id",
        "b",
        "--device",
        "cpu",
    ]
    done = torchstone(folder, "run", *options, "--backend", "kernelbench", "--kernels-dir", str(solutions))
    assert done.returncode == 1, done.stderr
    (line,) = (folder / "torchstone_runs" / "b" / "records.jsonl").read_text().splitlines()
    verdict = json.loads(line)["verdict"]
    message = "19_ReLU.py defines no class 'ModelNew', the expected name of the kernel; it defines Modelnew"
    assert verdict["message"] == f"ImportError: {message}"
    assert verdict.get("traceback") is None
    assert "worker/loading.py" not in torchstone(folder, "replay", "b").stdout


def operators(source: Path, name: str) -> tuple[str, ...]:
    return tuple(
        operator.split(".")[1] for operator in KernelBenchSuite().operators(CaseQuery((name,), source=str(source)))
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("19_ReLU", ("level1__19_ReLU",)),
        ("19_ReLU.py", ("level1__19_ReLU",)),
        ("level1/19_ReLU.py", ("level1__19_ReLU",)),
        ("level1__19_ReLU", ("level1__19_ReLU",)),
        ("level1", ("level1__19_ReLU", "level1__2_a_b")),
        ("2_a-b", ("level1__2_a_b",)),
        ("ReLU", ()),
        ("level", ()),
    ],
)
def test_names_of_a_problem_in_a_level(name: str, found: tuple[str, ...], tmp_path: Path) -> None:
    written(tmp_path / "level1", **{"19_ReLU": RELU, "2_a-b": RELU})
    assert operators(tmp_path, name) == found


@pytest.mark.parametrize(
    ("name", "found"), [("19_ReLU", ("p19_ReLU",)), ("p19_ReLU", ("p19_ReLU",)), ("plain", ("plain",)), ("lain", ())]
)
def test_names_of_a_problem_in_a_folder_without_levels(name: str, found: tuple[str, ...], tmp_path: Path) -> None:
    assert operators(written(tmp_path / "mine", **{"19_ReLU": RELU, "plain": RELU}), name) == found


def test_a_stem_that_several_problems_have_is_refused_with_their_names(tmp_path: Path) -> None:
    for level in ("level1", "level2"):
        written(tmp_path / level, **{"19_ReLU": RELU})
    message = "'19_ReLU' is the file name of 2 problems. Name one of level1__19_ReLU, level2__19_ReLU."
    with pytest.raises(UsageError, match=message):
        KernelBenchSuite().cases(CaseQuery(("19_ReLU",), source=str(tmp_path)))
