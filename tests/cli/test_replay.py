"""``torchstone replay`` end to end: a real run, then the failing calls again, each in real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = "def relu_kernel_impl(x):\n    return x.clamp(min=0) + 0.25 * (x > 1).to(x.dtype)\n"


def torchstone(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torchstone", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with disagreements."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "kernels" / "relu").mkdir(parents=True)
    (folder / "kernels" / "relu" / "relu.py").write_text(KERNEL)
    options = ("--ops", "relu", "--effort", "quick", "--no-measure", "--device", "cpu", "--dtype", "float32")
    where = ("--kernels-dir", str(folder / "kernels"), "--output-dir", str(folder), "--run-id", "wrong", "--quiet")
    result = torchstone("run", "--backend", "directory", *where, *options)
    assert result.returncode == 1, result.stderr
    return folder / "wrong"


def disagreements(folder: Path) -> dict[str, dict[str, object]]:
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return {record["job_key"]: record["verdict"] for record in records if record["verdict"]["type"] == "disagrees"}


def test_every_disagreement_fails_again_in_the_same_place(finished: Path) -> None:
    result = torchstone("replay", str(finished), "--json")
    assert result.returncode == 1, result.stderr
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == 1
    assert {replay["job_key"] for replay in answer["replays"]} == set(disagreements(finished))
    for replay in answer["replays"]:
        assert replay["reproduces"]
        assert replay["now"]["message"] in replay["recorded"]["message"], "the same element with the same values"
        assert replay["now"]["errors"]["smallest_wrong_error"] == pytest.approx(0.25, rel=1e-5)


def test_one_job_is_told_to_people(finished: Path) -> None:
    key = next(iter(disagreements(finished)))
    result = torchstone("replay", str(finished / "records.jsonl"), "--job", key[:12])
    assert result.returncode == 1, result.stderr
    assert result.stdout.count("fails again: disagrees:") == 1
    assert "wrong elements differ by 0.25 at least, 0.25 at most" in result.stdout


def test_what_cannot_be_replayed_is_wrong_usage(finished: Path, tmp_path: Path) -> None:
    for arguments, says in (
        ((str(finished), "--operator", "gelu"), "no record of operator 'gelu'"),
        ((str(finished), "--job", "zz"), "no record of a job 'zz'"),
        ((str(finished), "--job", "a", "--operator", "relu"), "not both"),
        ((str(tmp_path),), "no run folder"),
    ):
        result = torchstone("replay", *arguments)
        assert result.returncode == 2, result.stderr
        assert says in result.stderr


def test_a_source_that_was_changed_is_not_judged_as_the_old_one(finished: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(finished, tmp_path / "copy")
    (stored,) = (copy / "implementations").iterdir()
    stored.write_text(stored.read_text().replace("0.25", "0.0"))
    result = torchstone("replay", str(copy))
    assert result.returncode == 2
    assert "was changed since it was judged" in result.stderr
    stored.unlink()
    assert "cannot be read" in torchstone("replay", str(copy)).stderr
