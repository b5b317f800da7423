"""The real program with two backends: one run folder, one table, and the same files that one backend has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = "raise ImportError('no such helper')\n\n\ndef relu_kernel_impl(x):\n    return x\n"
RELU = "aten.relu.default"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """aten beside a kernel that cannot be imported, on every case of relu."""
    folder = tmp_path_factory.mktemp("backends")
    (folder / "kernels" / "relu").mkdir(parents=True)
    (folder / "kernels" / "relu" / "relu.py").write_text(KERNEL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("COLUMNS", None)
    options = ("--ops", "relu", "--effort", "quick", "--no-measure", "--device", "cpu", "--dtype", "float32")
    told = ("-v", "--durations", "2", "--junit", "junit.xml", "--run-id", "x")
    command = ("run", "--backend", "aten,directory", "--kernels-dir", "kernels", *options, *told)
    result = subprocess.run(
        [sys.executable, "-m", "torchstone", *command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    return folder, result


def test_the_table_has_both_and_equal_load_errors_are_told_once(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, result = finished
    assert re.search(rf"^\| {RELU} \| agrees +\| 0/(\d+) agrees, \1 crashed +\|$", result.stdout, re.MULTILINE)
    assert result.stdout.count("no such helper") == 1
    assert "backends aten, directory, device cpu" in result.stdout
    assert "command     torchstone run --backend aten,directory --kernels-dir kernels" in result.stdout
    assert re.search(r"^date        .* UTC, [0-9.]+ s$", result.stdout, re.MULTILINE)
    assert f"agrees       {RELU} [aten]  T(" in result.stderr
    assert f"crashed      {RELU} [directory]  T(" in result.stderr


def test_the_files_tell_the_backends_apart(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    rows = json.loads((folder / "torchstone_runs" / "x" / "full_results.json").read_text())
    verdicts = {(row["backend"], row["verdict"]) for row in rows}
    assert verdicts == {("aten", "agrees"), ("directory", "crashed")}
    suites = {suite.get("name"): suite for suite in ElementTree.parse(folder / "junit.xml").getroot()}
    assert set(suites) == {f"{RELU} [aten]", f"{RELU} [directory]"}
    assert suites[f"{RELU} [aten]"].get("failures") == "0"
    assert suites[f"{RELU} [directory]"].get("failures") == suites[f"{RELU} [directory]"].get("tests")
