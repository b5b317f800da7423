"""``torchstone replay`` end to end: a real run, then the failing calls again, each in real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from docs.pages import blocks

ROOT = Path(__file__).parents[2]
KERNELS = {
    "relu": "def relu_kernel_impl(x):\n    return x.clamp(min=0) + 0.25 * (x > 1).to(x.dtype)\n",
    "log": """
def log_kernel_impl(x):
    print("sizes \x1b[31m", tuple(x.shape))
    raise ValueError("no block fits")
""",
    "mul": "import blocks_that_are_not_there\n\ndef mul_kernel_impl(x, y):\n    return x * y\n",
    "gelu": "def gelu_kernel_impl(x, approximate='none'):\n    raise NotImplementedError('not yet')\n",
    "select__int": "def select__int_kernel_impl(x, dim, index):\n    return x.select(dim, index)\n",
}
"""Wrong, raising, not to be loaded, refusing, and right."""


def torchstone(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torchstone", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a disagreement, a crash in a call, a crash at load, a refusal, and an operator that agrees."""
    folder = tmp_path_factory.mktemp("replay")
    for name, text in KERNELS.items():
        (folder / "kernels" / name).mkdir(parents=True)
        (folder / "kernels" / name / f"{name}.py").write_text(text)
    options = (
        "--ops",
        "relu,log,mul,gelu,select",
        "--effort",
        "quick",
        "--no-measure",
        "--device",
        "cpu",
        "--dtype",
        "float32",
    )
    where = ("--kernels-dir", str(folder / "kernels"), "--output-dir", str(folder), "--run-id", "wrong", "--quiet")
    result = torchstone("run", "--backend", "directory", *where, *options)
    assert result.returncode == 1, result.stderr
    return folder / "wrong"


def disagreements(folder: Path) -> dict[str, dict[str, object]]:
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return {record["job_key"]: record["verdict"] for record in records if record["verdict"]["type"] == "disagrees"}


@pytest.fixture(scope="module")
def replayed(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Every failure of the run made again, and the folder in which the values lie."""
    folder = tmp_path_factory.mktemp("saved")
    result = torchstone("replay", str(finished), "--save", str(folder / "case.pt"), "--json")
    assert result.returncode == 1, result.stderr
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == 1
    return folder, answer["replays"]


def of(replays: list[dict[str, Any]], operator: str) -> list[dict[str, Any]]:
    return [replay for replay in replays if replay["operator"].startswith(f"aten.{operator}.")]


def test_every_disagreement_fails_again_in_the_same_place(
    finished: Path, replayed: tuple[Path, list[dict[str, Any]]]
) -> None:
    replays = of(replayed[1], "relu")
    assert {replay["job_key"] for replay in replays} == set(disagreements(finished))
    for replay in replays:
        assert replay["reproduces"]
        assert replay["now"]["message"] in replay["recorded"]["message"], "the same element with the same values"
        assert replay["now"]["errors"]["smallest_wrong_error"] == pytest.approx(0.25, rel=1e-5)


def test_crashes_happen_again_and_those_at_load_are_tried_once(
    replayed: tuple[Path, list[dict[str, Any]]],
) -> None:
    crashes, (at_load,) = of(replayed[1], "log"), of(replayed[1], "mul")
    assert len(crashes) > 1
    for replay in crashes:
        assert replay["reproduces"]
        assert replay["now"]["message"] == replay["recorded"]["message"] == "ValueError: no block fits"
    assert at_load["reproduces"]
    assert (at_load["now"]["type"], at_load["now"]["stage"]) == ("crashed", "load")


def test_of_several_failures_the_files_are_numbered_and_a_crash_has_no_result(
    replayed: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, replays = replayed
    numbered = [replay for replay in replays if replay["saved"]]
    assert [replay for replay in replays if not replay["saved"]] == of(replays, "mul"), "no call was made"
    assert {path.name for path in folder.iterdir()} == {Path(replay["saved"]).name for replay in numbered}
    for number, replay in enumerate(replays, 1):
        assert replay["saved"] in (None, str(folder / f"case-{number}.pt"))
    case = torch.load(of(replays, "log")[0]["saved"], weights_only=True)
    assert case["operator"] == "aten.log.default"
    assert case["result"] is None
    assert case["args_after"] is None
    torch.testing.assert_close(case["expected"][0], case["args"][0].log(), equal_nan=True)


def test_one_job_is_told_to_people_and_saved_for_the_snippet_of_the_docs(finished: Path, tmp_path: Path) -> None:
    key, verdict = next(iter(disagreements(finished).items()))
    saved = tmp_path / "case.pt"
    result = torchstone("replay", str(finished / "records.jsonl"), "--job", key[:12], "--save", str(saved))
    assert result.returncode == 1, result.stderr
    assert result.stdout.count("fails again: disagrees:") == 1
    assert "wrong elements differ by 0.25 at least, 0.25 at most" in result.stdout
    assert result.stdout.endswith(f"  saved: {saved}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["case.pt"], "nothing is left over"
    (snippet,) = (text for text in blocks(ROOT / "docs" / "cli.md", "python") if "case.pt" in text)
    assert len(list(filter(None, snippet.splitlines()))) == 4
    command = [sys.executable, "-c", snippet]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert read.returncode == 0, read.stderr
    assert read.stdout.startswith("aten.relu.default tensor([[")
    case = torch.load(saved, weights_only=True)
    (x,), (got,), (right,) = case["args"], case["result"], case["expected"]
    assert torch.equal(right, x.relu())
    assert torch.equal(got, x.clamp(min=0) + 0.25 * (x > 1)), "what the kernel itself returned"
    worst = re.search(r"worst at (\[[0-9, ]*\]): got ([^,]+),", str(verdict["message"]))
    assert worst is not None
    assert got[tuple(json.loads(worst[1]))].item() == pytest.approx(float(worst[2]), rel=1e-5)


def test_one_case_shows_the_traceback_and_the_output_of_a_crash(finished: Path) -> None:
    shown = torchstone("show", str(finished), "--case", "aten.log").stdout
    assert 'File "/scratch/kernel/log.py", line 4, in log_kernel_impl' in shown
    assert "torchstone/worker" not in shown, "frames of the worker say nothing about the kernel"
    assert "sizes \\x1b[31m (" in shown
    assert "\x1b" not in shown


def test_without_a_failure_there_is_nothing_to_replay(finished: Path) -> None:
    result = torchstone("replay", str(finished), "--operator", "select")
    assert (result.returncode, result.stdout) == (0, "nothing to replay: every case agrees\n"), result.stderr
    result = torchstone("replay", str(finished), "--operator", "select", "--json")
    assert (result.returncode, json.loads(result.stdout)) == (0, {"exit_code": 0, "replays": []})


def test_a_refusal_is_a_failure_that_names_no_call(finished: Path) -> None:
    result = torchstone("replay", str(finished), "--operator", "gelu")
    assert (result.returncode, result.stdout) == (2, "")
    assert re.search(r"none of the failures in .* names a call that can be repeated \(\d+ unsupported\)", result.stderr)


def test_what_cannot_be_replayed_is_wrong_usage(finished: Path, tmp_path: Path) -> None:
    for arguments, says in (
        ((str(finished), "--operator", "exp"), "no record of operator 'exp'"),
        ((str(finished), "--job", "zz"), "no record of a job 'zz'"),
        ((str(finished), "--job", "a", "--operator", "relu"), "not both"),
        ((str(tmp_path),), "not a run folder"),
        ((str(finished), "--save", str(tmp_path / "no" / "case.pt")), "Name a file in a folder that exists"),
    ):
        result = torchstone("replay", *arguments)
        assert result.returncode == 2, result.stderr
        assert says in result.stderr


def test_a_source_that_was_changed_is_not_judged_as_the_old_one(finished: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(finished, tmp_path / "copy")
    (stored,) = (each for each in (copy / "implementations").iterdir() if "0.25" in each.read_text())
    stored.write_text(stored.read_text().replace("0.25", "0.0"))
    result = torchstone("replay", str(copy), "--operator", "relu")
    assert result.returncode == 2
    assert "was changed since it was judged" in result.stderr
    stored.unlink()
    assert "cannot be read" in torchstone("replay", str(copy), "--operator", "relu").stderr
